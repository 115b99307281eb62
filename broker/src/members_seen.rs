//! For which members of share groups a connection speaks, so that the shard is told once and not with every request.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Members that one connection is remembered to speak for. A client has one; of more the oldest are forgotten, and
/// told again when they come back.
const REMEMBERED_MAX: usize = 16;

/// What one connection has told.
#[derive(Debug, Default)]
pub struct MembersSeen {
    /// Group and member, oldest first.
    told: Mutex<VecDeque<(Arc<str>, Arc<str>)>>,
}

impl MembersSeen {
    /// Whether the shard is to be told of this member. `begins` says that the member joins or opens a session by this
    /// request: whatever the shard knew of it before may be gone, so it is told again.
    pub fn is_news(&self, group: &Arc<str>, member: &Arc<str>, begins: bool) -> bool {
        let mut told = self.told.lock();
        if told.iter().any(|(known_group, known)| known == member && known_group == group) {
            return begins;
        }
        if told.len() == REMEMBERED_MAX {
            told.pop_front();
        }
        told.push_back((Arc::clone(group), Arc::clone(member)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_news_once_and_when_it_begins_anew() {
        let seen = MembersSeen::default();
        let [group, other, member] = ["g", "h", "m"].map(Arc::<str>::from);
        assert!(seen.is_news(&group, &member, false));
        assert!(!seen.is_news(&group, &member, false));
        assert!(seen.is_news(&group, &member, true));
        assert!(seen.is_news(&other, &member, false));
        assert!(!seen.is_news(&group, &member, false));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let seen = MembersSeen::default();
        let group: Arc<str> = Arc::from("g");
        for number in 0..1_000 {
            assert!(seen.is_news(&group, &Arc::from(format!("m{number}")), false));
        }
        assert_eq!(seen.told.lock().len(), REMEMBERED_MAX);
        assert!(!seen.is_news(&group, &Arc::from("m999"), false));
    }
}
