//! Raw Redis commands, each over a connection of its own: no pool, no repetition, nothing hidden.

use std::future::Future;
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A reply of Redis's protocol, version 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `+text`
    Status(String),
    /// `-text`
    Error(String),
    /// `:number`
    Integer(i64),
    /// A string of bytes.
    Bytes(Vec<u8>),
    /// No value.
    Nil,
    /// A list.
    Array(Vec<Value>),
}

impl Value {
    /// The text of a status, an error or bytes; numbers in digits; empty for what is none of them.
    pub fn text(&self) -> String {
        match self {
            Self::Status(text) | Self::Error(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil | Self::Array(_) => String::new(),
        }
    }

    /// The items of a list; empty for what is none.
    pub fn items(&self) -> &[Self] {
        if let Self::Array(items) = self { items } else { &[] }
    }

    /// The texts of a list.
    pub fn texts(&self) -> Vec<String> {
        self.items().iter().map(Self::text).collect()
    }

    /// The number, also where it came as text.
    pub fn number(&self) -> Option<i64> {
        if let Self::Integer(number) = self { Some(*number) } else { self.text().parse().ok() }
    }
}

/// Sends one command and reads its reply.
pub async fn command<A: AsRef<[u8]>>(port: u16, arguments: &[A]) -> io::Result<Value> {
    let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?);
    let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        request.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        request.extend_from_slice(argument);
        request.extend_from_slice(b"\r\n");
    }
    stream.write_all(&request).await?;
    read(&mut stream).await
}

fn read<R: AsyncBufRead + Unpin + Send>(
    from: &mut R,
) -> Pin<Box<dyn Future<Output = io::Result<Value>> + Send + '_>> {
    Box::pin(async move {
        let mut line = String::new();
        if from.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let malformed = || io::Error::other(format!("not a reply: {line:?}"));
        let rest = line.get(1..).ok_or_else(malformed)?.trim_end();
        let number = || rest.parse::<i64>().map_err(|_| malformed());
        match line.as_bytes()[0] {
            b'+' => Ok(Value::Status(rest.to_owned())),
            b'-' => Ok(Value::Error(rest.to_owned())),
            b':' => number().map(Value::Integer),
            b'$' => {
                let Ok(length) = usize::try_from(number()?) else { return Ok(Value::Nil) };
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes).await?;
                bytes.truncate(length);
                Ok(Value::Bytes(bytes))
            }
            b'*' => {
                let Ok(length) = usize::try_from(number()?) else { return Ok(Value::Nil) };
                let mut items = Vec::with_capacity(length);
                for _ in 0..length {
                    items.push(read(from).await?);
                }
                Ok(Value::Array(items))
            }
            _ => Err(malformed()),
        }
    })
}
