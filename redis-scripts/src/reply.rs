//! Reading a script's answer, item by item.

use fred::types::Value;
use std::collections::VecDeque;

use crate::{CellVersion, FenceToken, RedisMillis, SettingsVersion};

/// Where an answer departs from the script's header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedReply {
    /// A reply code that the header does not name.
    #[error("unknown reply code {code:?}")]
    Code {
        /// The code found.
        code: String,
    },
    /// An item that is not there or of another kind.
    #[error("item {at} is not {expected}")]
    Item {
        /// Its position, the code being 0.
        at: usize,
        /// What it should be.
        expected: &'static str,
    },
}

/// The items of an answer that have not been read yet.
#[derive(Debug)]
pub(crate) struct Reply {
    items: VecDeque<Value>,
    at: usize,
}

impl Reply {
    pub(crate) fn new(value: Value) -> Self {
        let items = match value {
            Value::Array(items) => items.into(),
            other => VecDeque::from([other]),
        };
        Self { items, at: 0 }
    }

    fn next(&mut self, expected: &'static str) -> Result<Value, MalformedReply> {
        let at = self.at;
        self.at += 1;
        self.items.pop_front().ok_or(MalformedReply::Item { at, expected })
    }

    fn wrong<T>(&self, expected: &'static str) -> Result<T, MalformedReply> {
        Err(MalformedReply::Item { at: self.at - 1, expected })
    }

    pub(crate) fn text(&mut self) -> Result<String, MalformedReply> {
        match self.next("text")? {
            Value::String(text) => Ok(text.to_string()),
            Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).or_else(|_| self.wrong("text")),
            Value::Integer(number) => Ok(number.to_string()),
            _ => self.wrong("text"),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, MalformedReply> {
        match self.next("a number")? {
            Value::Integer(number) => u64::try_from(number).or_else(|_| self.wrong("a number")),
            Value::String(text) => text.parse().or_else(|_| self.wrong("a number")),
            _ => self.wrong("a number"),
        }
    }

    pub(crate) fn count(&mut self) -> Result<usize, MalformedReply> {
        let number = self.number()?;
        usize::try_from(number).or_else(|_| self.wrong("a count"))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, MalformedReply> {
        Ok(self.number()? != 0)
    }

    pub(crate) fn token(&mut self) -> Result<FenceToken, MalformedReply> {
        self.number().map(FenceToken::new)
    }

    pub(crate) fn millis(&mut self) -> Result<RedisMillis, MalformedReply> {
        self.number().map(RedisMillis::new)
    }

    pub(crate) fn cell(&mut self) -> Result<CellVersion, MalformedReply> {
        self.number().map(CellVersion::new)
    }

    pub(crate) fn settings(&mut self) -> Result<SettingsVersion, MalformedReply> {
        self.number().map(SettingsVersion::new)
    }

    pub(crate) fn nested(&mut self) -> Result<Self, MalformedReply> {
        match self.next("a list")? {
            Value::Array(items) => Ok(Self { items: items.into(), at: 0 }),
            _ => self.wrong("a list"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// A text whatever its bytes are: what is none is left for whoever makes sense of it.
    fn any_text(&mut self) -> Result<String, MalformedReply> {
        match self.next("text")? {
            Value::Bytes(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            value => {
                self.items.push_front(value);
                self.at -= 1;
                self.text()
            }
        }
    }

    /// The rest as pairs, whatever their bytes are.
    pub(crate) fn any_pairs(mut self) -> Result<Vec<(String, String)>, MalformedReply> {
        let mut pairs = Vec::with_capacity(self.items.len() / 2);
        while !self.is_empty() {
            pairs.push((self.any_text()?, self.any_text()?));
        }
        Ok(pairs)
    }

    /// The rest as pairs of texts: a hash, or members with their scores.
    pub(crate) fn pairs(mut self) -> Result<Vec<(String, String)>, MalformedReply> {
        let mut pairs = Vec::with_capacity(self.items.len() / 2);
        while !self.is_empty() {
            pairs.push((self.text()?, self.text()?));
        }
        Ok(pairs)
    }
}

impl MalformedReply {
    pub(crate) fn code<T>(code: &str) -> Result<T, Self> {
        Err(Self::Code { code: code.to_owned() })
    }
}
