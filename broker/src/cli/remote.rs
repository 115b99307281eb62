//! What the commands share that talk to a broker over the wire: how it is reached, what can go wrong, how tables are
//! printed.

use std::future::Future;
use std::io::{self, Write as _};

use clap::Args;
use client::Admin;
use protocol::ErrorCode;
use serde_json::Value;

use super::Exit;

/// How to reach the broker, and how to print.
#[derive(Clone, Debug, Args)]
pub(super) struct Reach {
    /// A broker, or several separated by commas.
    #[arg(long, global = true, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    bootstrap_server: String,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// The broker could not be reached, or refused.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// Nobody reads what is printed, or the disk is full.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
    /// What was asked for cannot be done, and what to do instead.
    #[error("{0}")]
    Refused(String),
}

impl Trouble {
    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }
}

/// What a command says: for people, and for programs.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) json: Value,
    /// Whether something of it was refused, though the rest was done.
    pub(super) failed: bool,
    /// What is said beside it, of what went wrong.
    pub(super) complaint: Option<String>,
}

impl Reach {
    /// Connects, does `work`, prints what it says, and gives the process's exit code.
    pub(super) fn run<W, F>(&self, command: &str, work: W) -> Exit
    where
        W: FnOnce(Admin) -> F,
        F: Future<Output = Result<Said, Trouble>>,
    {
        let done = self.try_run(command, work);
        match done {
            Ok(false) => Exit::Success,
            Ok(true) => Exit::Runtime,
            Err(Trouble::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
            Err(error) => {
                eprintln!("sluice {command}: {error}");
                Exit::Runtime
            }
        }
    }

    fn try_run<W, F>(&self, command: &str, work: W) -> Result<bool, Trouble>
    where
        W: FnOnce(Admin) -> F,
        F: Future<Output = Result<Said, Trouble>>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let said = runtime.block_on(async {
            let admin = Admin::connect(&self.bootstrap_server, "sluice-cli").await?;
            work(admin).await
        })?;
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{:#}", said.json)?;
        } else {
            out.write_all(said.text.as_bytes())?;
        }
        if let Some(complaint) = &said.complaint {
            eprintln!("sluice {command}: {complaint}");
        }
        Ok(said.failed || said.complaint.is_some())
    }
}

/// A refusal in words and by its code's name, which is all there is where the broker sends no words.
pub(super) fn refusal((code, message): &(ErrorCode, String)) -> String {
    let name = format!("{code:?}");
    if *message == name { name } else { format!("{message} ({name})") }
}

/// Rows under their heads, each column as wide as its widest word; two blanks between columns, none at the end.
pub(super) fn table(indent: usize, heads: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = " ".repeat(indent);
        for (cell, width) in cells.zip(&widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width - cell.chars().count() + 2));
        }
        format!("{}\n", line.trim_end())
    };
    let mut text = line(&mut heads.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_nothing_twice() {
        let refused = |message: &str| refusal(&(ErrorCode::NonEmptyGroup, message.to_owned()));
        assert_eq!(refused("NonEmptyGroup"), "NonEmptyGroup");
        assert_eq!(refused("it has members"), "it has members (NonEmptyGroup)");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["longer".to_owned(), "22".to_owned()]];
        assert_eq!(table(2, &["KEY", "N"], &rows), "  KEY     N\n  a       1\n  longer  22\n");
        assert_eq!(table(0, &["KEY"], &[]), "KEY\n");
    }
}
