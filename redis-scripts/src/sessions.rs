//! `sessions_open`, `sessions_close`, `sessions_touch`, `sessions_of`, `notify`: where a user's sessions are.

use key_prefix::{ChannelKind, Instance, KeyKind, Keys};
use std::time::Duration;

use crate::instance::ms;
use crate::reply::{MalformedReply, Reply};
use crate::script::{
    Call, NOTIFY, SESSIONS_CLOSE, SESSIONS_OF, SESSIONS_OPEN, SESSIONS_TOUCH, ScriptError, Scripts,
};

/// A user's sessions are forgotten so long after the last of them was touched.
pub const SESSIONS_LIFE: Duration = Duration::from_secs(3600);

/// A session that begins.
#[derive(Debug, Clone, Copy)]
pub struct SessionOpen<'a> {
    /// The app.
    pub app: &'a str,
    /// The user.
    pub user: &'a str,
    /// The socket's id.
    pub socket: &'a str,
    /// What is known of it, as JSON.
    pub json: &'a str,
}

/// A session of a user, on an instance that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// `name/incarnation` of the instance that holds it.
    pub instance: String,
    /// The socket's id there.
    pub socket: String,
    /// What is known of it, as JSON.
    pub json: String,
}

/// What `notify` is told.
#[derive(Debug)]
pub struct Notify<'a> {
    /// The app.
    pub app: &'a str,
    /// Whose sessions are to be told.
    pub users: &'a [&'a str],
    /// The event's name.
    pub event: &'a str,
    /// What it carries, as JSON.
    pub body: &'a str,
    /// A socket that knows already, beside the body: it is nobody else's business.
    pub except: Option<&'a str>,
}

fn subject(app: &str, user: &str) -> String {
    format!("{app}\0{user}")
}

fn done(code: &str, _: &mut Reply) -> Result<(), MalformedReply> {
    match code {
        "ok" => Ok(()),
        code => MalformedReply::code(code),
    }
}

impl Scripts {
    /// Notes sessions that began on this instance.
    pub async fn sessions_open(
        &self,
        keys: &Keys,
        me: &Instance,
        sessions: &[SessionOpen<'_>],
    ) -> Result<(), ScriptError> {
        let mut call = Call::default()
            .text(me.as_str())
            .number(ms(SESSIONS_LIFE))
            .bytes(keys.base(KeyKind::Sessions).bytes());
        for session in sessions {
            call = call.text(&subject(session.app, session.user)).texts([session.socket, session.json]);
        }
        self.read(&SESSIONS_OPEN, call, done).await
    }

    /// Notes sessions of this instance that ended: app, user and socket of each.
    pub async fn sessions_close(
        &self,
        keys: &Keys,
        me: &Instance,
        sessions: &[(&str, &str, &str)],
    ) -> Result<(), ScriptError> {
        let mut call = Call::default().text(me.as_str()).bytes(keys.base(KeyKind::Sessions).bytes());
        for (app, user, socket) in sessions {
            call = call.text(&subject(app, user)).text(socket);
        }
        self.read(&SESSIONS_CLOSE, call, done).await
    }

    /// Keeps the sessions of users, each an app and a user, for `life` from now.
    pub async fn sessions_touch(
        &self,
        keys: &Keys,
        users: &[(&str, &str)],
        life: Duration,
    ) -> Result<(), ScriptError> {
        let mut call = Call::default().number(ms(life)).bytes(keys.base(KeyKind::Sessions).bytes());
        for (app, user) in users {
            call = call.text(&subject(app, user));
        }
        self.read(&SESSIONS_TOUCH, call, done).await
    }

    /// The sessions of a user on instances that live.
    pub async fn sessions_of(&self, keys: &Keys, app: &str, user: &str) -> Result<Vec<Session>, ScriptError> {
        let call = Call::keys([&keys.instances(), &keys.sessions(app, user)]);
        self.read(&SESSIONS_OF, call, |code, reply| match code {
            "ok" => {
                let mut found = reply.nested()?;
                let mut sessions = Vec::new();
                while !found.is_empty() {
                    sessions.push(Session {
                        instance: found.text()?,
                        socket: found.text()?,
                        json: found.text()?,
                    });
                }
                Ok(sessions)
            }
            code => MalformedReply::code(code),
        })
        .await
    }

    /// Sends an event to all sessions of users: to the control channel of each instance that holds one, once
    /// for each user, `{"app":…,"user":…,"event":…,"body":…}`. Returns how many messages that took.
    pub async fn notify(&self, keys: &Keys, with: Notify<'_>) -> Result<usize, ScriptError> {
        let call = Call::keys([&keys.instances()])
            .bytes(keys.base(KeyKind::Sessions).bytes())
            .bytes(keys.base(KeyKind::Instance).bytes())
            .bytes(keys.channel_base(ChannelKind::Control).bytes())
            .texts([with.app, with.event, with.body, with.except.unwrap_or_default()])
            .texts(with.users.iter().copied());
        self.read(&NOTIFY, call, |code, reply| match code {
            "ok" => reply.count(),
            code => MalformedReply::code(code),
        })
        .await
    }
}
