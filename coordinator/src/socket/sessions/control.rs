//! What other instances have for all sessions of a user here.

use key_prefix::{AppCode, RoomId, RoomKey, UserId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Sessions;
use crate::node::Node;
use crate::paths::{Astray, Class as _, Control};

/// A message of the control channel.
#[derive(Debug)]
struct Message<'a> {
    app: AppCode,
    user: UserId,
    event: Control,
    body: &'a RawValue,
    /// The room that its body names.
    room: Option<RoomKey>,
    /// The connection that knows already.
    except: Option<String>,
}

impl<'a> Message<'a> {
    fn read(text: &'a str) -> Result<Self, Astray> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            app: String,
            user: String,
            event: String,
            #[serde(borrow)]
            body: &'a RawValue,
            #[serde(default)]
            except: Option<String>,
        }
        #[derive(Deserialize)]
        struct Named {
            event: String,
        }
        #[derive(Default, Deserialize)]
        struct Details {
            #[serde(default)]
            room: Option<String>,
        }
        let Ok(raw) = serde_json::from_str::<Raw<'a>>(text) else {
            // Whatever else is wrong with it, an event of the owner's path is named as such.
            let named = serde_json::from_str::<Named>(text).map_err(|_| Astray::Malformed)?;
            return Err(Control::arriving(&named.event).err().unwrap_or(Astray::Malformed));
        };
        let event = Control::arriving(&raw.event)?;
        if !raw.body.get().starts_with('{') {
            return Err(Astray::Malformed);
        }
        let app = AppCode::new(&raw.app).map_err(|_| Astray::Malformed)?;
        let user = UserId::new(&raw.user).map_err(|_| Astray::Malformed)?;
        let Details { room } = serde_json::from_str(raw.body.get()).unwrap_or_default();
        let room = room.and_then(|id| Some(RoomKey::new(app.clone(), RoomId::new(&id).ok()?)));
        Ok(Self { app, user, event, body: raw.body, room, except: raw.except })
    }
}

impl Sessions {
    /// Delivers a message of the control channel, `{"app","user","event","body"}`, to all sessions of its
    /// user here. Who was put out of a room no longer watches it either.
    pub fn controlled(&self, node: &Node, text: &str) {
        let message = match Message::read(text) {
            Ok(message) => message,
            Err(astray) => {
                tracing::debug!(reason = astray.label(), "a control message was dropped");
                self.count(astray.label());
                return;
            }
        };
        let Message { app, user, event, body, room, except } = message;
        if self.tell(&app, &user, event, body, except.as_deref()) == 0 {
            self.count("no_local_session");
        }
        if event == Control::RoomKicked
            && let Some(room) = room
        {
            for client in self.of_user(&app, &user) {
                node.watches.remove(node, client.sid(), std::slice::from_ref(&room));
                client.connection.watched().remove(&room);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_user_event_and_room() {
        let text =
            r#"{"app":"school","user":"ann","event":"room:kicked","body":{"room":"math","reason":"noise"}}"#;
        let message = Message::read(text).unwrap();
        assert_eq!((message.app.as_str(), message.user.as_str()), ("school", "ann"));
        assert_eq!(message.event, Control::RoomKicked);
        assert_eq!(message.room.unwrap().room(), "math");
        assert_eq!(message.body.get(), r#"{"room":"math","reason":"noise"}"#);
        let evicted = r#"{"app":"a","user":"u","event":"session:evicted","body":{"reason":"signed_out"}}"#;
        assert_eq!(Message::read(evicted).unwrap().room, None);
    }

    #[test]
    fn only_the_events_of_this_channel_pass() {
        let with = |event: &str| format!(r#"{{"app":"a","user":"u","event":"{event}","body":{{}}}}"#);
        for event in ["call:incoming", "call:ended_elsewhere", "room:kicked", "session:evicted"] {
            assert_eq!(Message::read(&with(event)).unwrap().event.name(), event);
        }
        for event in ["mic:update", "room:update", "room:presence", "message:new", "room:closed"] {
            assert_eq!(Message::read(&with(event)).unwrap_err(), Astray::OwnerPath, "{event}");
        }
        for event in ["auth:expiring", "card:update", "rooms:update", "whatever"] {
            assert_eq!(Message::read(&with(event)).unwrap_err(), Astray::Malformed, "{event}");
        }
    }

    #[test]
    fn what_is_no_message_is_dropped() {
        let malformed = [
            "",
            "7",
            "{}",
            r#"{"app":"a","user":"u","event":"room:kicked"}"#,
            r#"{"app":"a","user":"u","event":"room:kicked","body":7}"#,
            r#"{"app":"","user":"u","event":"room:kicked","body":{}}"#,
            r#"{"app":"a","user":7,"event":"room:kicked","body":{}}"#,
        ];
        for text in malformed {
            assert_eq!(Message::read(text).unwrap_err(), Astray::Malformed, "{text}");
        }
        let stray = r#"{"room":"a\u0000b","event":"mic:update","seats":[]}"#;
        assert_eq!(Message::read(stray).unwrap_err(), Astray::OwnerPath);
    }
}
