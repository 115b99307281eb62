//! Who waits for which reply.

use std::collections::HashMap;

use coordinator::command::Ticket;
use tokio::sync::oneshot;

use super::handle::Reply;

/// The commands that the shard has and that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    waiting: HashMap<Ticket, oneshot::Sender<Reply>>,
}

impl Replies {
    pub(crate) fn expect(&mut self, ticket: Ticket, waiting: oneshot::Sender<Reply>) {
        self.waiting.insert(ticket, waiting);
    }

    /// Answers. Nobody waits where the connection went first.
    pub(crate) fn answer(&mut self, ticket: Ticket, reply: Reply) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            let _ = waiting.send(reply);
        }
    }

    /// Forgets those for which nobody waits any more: the shard drops what is parked for a connection that is gone,
    /// and never answers it.
    pub(crate) fn forget_gone(&mut self) {
        self.waiting.retain(|_, waiting| !waiting.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waits_for_is_forgotten() {
        let mut replies = Replies::default();
        let (gone, receiver) = oneshot::channel();
        replies.expect(Ticket(1), gone);
        drop(receiver);
        let (stays, mut receiver) = oneshot::channel();
        replies.expect(Ticket(2), stays);
        replies.forget_gone();
        assert_eq!(replies.waiting.len(), 1);
        replies.answer(Ticket(1), Reply::Produced(Vec::new()));
        replies.answer(Ticket(2), Reply::Produced(Vec::new()));
        assert!(matches!(receiver.try_recv(), Ok(Reply::Produced(_))));
        assert!(replies.waiting.is_empty());
    }
}
