//! What an event log must hold.

/// An event: it speaks of the batch at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) serial: u64,
    pub(crate) epoch: i32,
    pub(crate) offset: i64,
    pub(crate) batch: u64,
}

impl Event {
    pub(crate) fn text(&self) -> String {
        format!("{},{},{},{}", self.serial, self.epoch, self.offset, self.batch)
    }

    /// The way back from [`Event::text`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(',');
        let mut field = || fields.next()?.parse::<i64>().ok();
        let event = Self {
            serial: field()? as u64,
            epoch: field()? as i32,
            offset: field()?,
            batch: field()? as u64,
        };
        fields.next().is_none().then_some(event)
    }
}

/// One event log.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventModel {
    /// All events so far.
    pub(crate) list: Vec<Event>,
    /// How many there were after each append: what survives must end there.
    pub(crate) ends: Vec<usize>,
    /// How many must survive a power cut.
    pub(crate) synced: usize,
    /// Were being appended when the process died.
    pub(crate) maybe: Vec<Event>,
    /// What was there before a deletion that no sync has reached, and may come back.
    pub(crate) ghosts: Vec<Self>,
}

impl EventModel {
    pub(crate) fn push(&mut self, events: Vec<Event>) {
        self.list.extend(events);
        self.ends.push(self.list.len());
    }

    /// Whether just these events can be there, of which `kept` must be.
    pub(crate) fn may_be(&self, found: &[Event], kept: usize) -> bool {
        let count = found.len();
        let known = count.min(self.list.len());
        if found[..known] != self.list[..known] || count < kept {
            return false;
        }
        if count <= self.list.len() {
            return count == 0 || self.ends.contains(&count);
        }
        !self.maybe.is_empty() && found[known..] == self.maybe[..]
    }

    /// Goes on with what was found.
    pub(crate) fn settle(&mut self, found: Vec<Event>) {
        self.synced = self.synced.min(found.len());
        self.ends.retain(|end| *end <= found.len());
        if self.ends.last() != Some(&found.len()) && !found.is_empty() {
            self.ends.push(found.len());
        }
        self.list = found;
        self.maybe.clear();
    }
}
