//! Where the ledger is: `sqlite://path`, `postgres://…` or `mysql://…`.

use std::fmt;
use std::path::Path;

use url::Url;

use crate::db::Dialect;

/// An address that was understood. Shown without its password.
#[derive(Clone)]
pub struct Address {
    pub(crate) dialect: Dialect,
    pub(crate) url: Url,
}

/// Why an address was not understood. It never holds the address itself, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It has no scheme, or another one.
    #[error("a ledger's address begins with `sqlite://`, `postgres://` or `mysql://`")]
    Scheme,
    /// There is nothing after `sqlite://`, or what is no file.
    #[error("`sqlite://` is followed by the path of a file")]
    Path,
    /// It cannot be parsed.
    #[error("the ledger's address is no URL: {0}")]
    Malformed(#[from] url::ParseError),
    /// No name of a database.
    #[error("the ledger's address names no database: it ends with `/name`")]
    NoDatabase,
}

impl Address {
    /// Understands `text`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme)?;
        let dialect = match scheme {
            "sqlite" => return Self::of_file(Path::new(rest)),
            "postgres" | "postgresql" => Dialect::Postgres,
            "mysql" | "mariadb" => Dialect::Mysql,
            _ => return Err(AddressError::Scheme),
        };
        let url = Url::parse(text)?;
        if url.path().trim_matches('/').is_empty() {
            return Err(AddressError::NoDatabase);
        }
        Ok(Self { dialect, url })
    }

    /// The database in a local file, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// It is no path.
    pub fn of_file(path: &Path) -> Result<Self, AddressError> {
        let path = std::path::absolute(path).map_err(|_| AddressError::Path)?;
        if path.file_name().is_none() || path.is_dir() {
            return Err(AddressError::Path);
        }
        let file = Url::from_file_path(path).map_err(|()| AddressError::Path)?;
        let url = Url::parse(&format!("sqlite://{}?mode=rwc", file.path()))?;
        Ok(Self { dialect: Dialect::Sqlite, url })
    }

    /// Which of the three.
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.url.clone();
        shown.set_query(None);
        if shown.password().is_some() {
            // A URL that holds a password can hold another.
            let _ = shown.set_password(Some("***"));
        }
        fmt::Display::fmt(&shown, f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_kinds_of_address_are_told_apart() {
        for (text, dialect) in [
            ("sqlite:///var/lib/dais/ledger.db", Dialect::Sqlite),
            ("sqlite://ledger.db", Dialect::Sqlite),
            ("postgres://dais@db/dais", Dialect::Postgres),
            ("postgresql://dais@db:5433/dais?sslmode=require", Dialect::Postgres),
            ("mysql://dais@db/dais", Dialect::Mysql),
            ("mariadb://dais@db/dais", Dialect::Mysql),
        ] {
            assert_eq!(Address::parse(text).map(|it| it.dialect()), Ok(dialect), "{text}");
        }
        for (text, error) in [
            ("ledger.db", AddressError::Scheme),
            ("redis://db/0", AddressError::Scheme),
            ("sqlite://", AddressError::Path),
            ("sqlite:///", AddressError::Path),
            ("postgres://db", AddressError::NoDatabase),
            ("mysql://db/", AddressError::NoDatabase),
        ] {
            assert_eq!(Address::parse(text).map(|it| it.to_string()), Err(error), "{text}");
        }
        assert!(matches!(Address::parse("postgres://db:port/dais"), Err(AddressError::Malformed(_))));
    }

    #[test]
    fn a_password_is_never_shown() {
        for text in ["postgres://dais:secret@db/dais?password=secret", "mysql://dais:secret@db/dais"] {
            let address = Address::parse(text).expect("an address");
            assert!(!format!("{address} {address:?}").contains("secret"), "{address}");
        }
        let error = Address::parse("postgres://dais:secret@db:port/dais").expect_err("no port");
        assert!(!error.to_string().contains("secret"));
    }

    #[test]
    fn a_path_may_hold_anything() {
        let address = Address::parse("sqlite:///tmp/a b/c?d#e%f.db").expect("an address");
        assert_eq!(address.url.path(), "/tmp/a%20b/c%3Fd%23e%25f.db");
    }
}
