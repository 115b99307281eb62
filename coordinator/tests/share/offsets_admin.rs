//! DeleteShareGroupOffsets: state of partitions goes, and nothing else.

use coordinator::group::GroupError;
use coordinator::reply::Reply;
use coordinator::share::{LeftBy, ShareCommand, ShareError};
use records::ids::PartitionId;

use crate::common::{ACCEPT, World, group, none_config, offsets, partition};

type Outcome = (PartitionId, Result<bool, ShareError>);

fn delete(w: &mut World, partitions: &[i32]) -> Option<Result<Vec<Outcome>, GroupError>> {
    let partitions = partitions.iter().map(|&index| partition(index)).collect();
    let ticket = w.command(ShareCommand::DeleteOffsets { group: group(), partitions });
    w.replies.remove(&ticket).map(|reply| match reply {
        Reply::ShareOffsetsDeleted(outcome) => outcome,
        other => panic!("not the answer of a deletion: {other:?}"),
    })
}

#[test]
fn s18_deleted_offsets_are_forgotten_also_after_a_restart() {
    for restarted in [false, true] {
        let mut w = World::new(none_config());
        w.log("a b c");
        assert_eq!(offsets(&w.fetch("A", 10)), [0, 1, 2]);
        assert_eq!(w.ack("A", 0, 1, ACCEPT), None);
        w.left("A", LeftBy::SessionTimeout);
        if restarted {
            w.restart(0);
        }
        let outcomes = delete(&mut w, &[0, 1]).unwrap().unwrap();
        assert_eq!(outcomes, [(partition(0), Ok(true)), (partition(1), Ok(false))]);
        assert_eq!(delete(&mut w, &[0]).unwrap().unwrap(), [(partition(0), Ok(false))], "nothing is left");
        w.reopen("A");
        assert_eq!(offsets(&w.fetch("A", 10)), [0, 1, 2], "it begins as a new one");
    }
}

#[test]
fn s18_a_group_that_got_a_member_meanwhile_keeps_everything() {
    let mut w = World::new(none_config());
    w.log("a b");
    assert_eq!(offsets(&w.fetch("A", 10)), [0, 1]);
    assert_eq!(w.ack("A", 0, 0, ACCEPT), None);
    w.live(&["A"]);
    assert_eq!(delete(&mut w, &[0]), Some(Err(GroupError::NonEmptyGroup)));
    assert_eq!(w.start(), 1);
}
