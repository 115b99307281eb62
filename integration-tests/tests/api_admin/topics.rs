//! CreateTopics, DeleteTopics, CreatePartitions, DescribeTopicPartitions.

use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::CreatableReplicaAssignment;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, MetadataRequest,
};
use records::Codec;

use super::support::{DEFAULT, Fixture, SET_ON_TOPIC, TOPIC, new_topic, setting, topic_name};

impl Fixture {
    /// Error and partition indexes of a topic, or `None` where there is no such topic.
    fn partitions(&mut self, topic: &str) -> Option<Vec<i32>> {
        let named = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
        let request =
            MetadataRequest::default().with_topics(Some(vec![named])).with_allow_auto_topic_creation(false);
        let topic = self.client.call(12, &request).topics.remove(0);
        (topic.error_code == 0)
            .then(|| topic.partitions.iter().map(|partition| partition.partition_index).collect())
    }

    fn grow(&mut self, topic: &str, count: i32) -> i16 {
        let topic = CreatePartitionsTopic::default()
            .with_name(topic_name(topic))
            .with_count(count)
            .with_assignments(None);
        self.grow_as(vec![topic])[0]
    }

    fn grow_as(&mut self, topics: Vec<CreatePartitionsTopic>) -> Vec<i16> {
        let request = CreatePartitionsRequest::default().with_topics(topics).with_timeout_ms(10_000);
        self.client.call(3, &request).results.iter().map(|result| result.error_code).collect()
    }

    fn delete(&mut self, topics: Vec<DeleteTopicState>) -> Vec<i16> {
        let request = DeleteTopicsRequest::default().with_topics(topics).with_timeout_ms(10_000);
        self.client.call(6, &request).responses.iter().map(|result| result.error_code).collect()
    }

    fn walk(
        &mut self,
        topics: &[&str],
        limit: i32,
        cursor: Option<(&str, i32)>,
    ) -> DescribeTopicPartitionsResponse {
        let named = |name: &&str| TopicRequest::default().with_name(topic_name(name));
        let cursor = cursor.map(|(name, index)| {
            Cursor::default().with_topic_name(topic_name(name)).with_partition_index(index)
        });
        let request = DescribeTopicPartitionsRequest::default()
            .with_topics(topics.iter().map(named).collect())
            .with_response_partition_limit(limit)
            .with_cursor(cursor);
        self.client.call(0, &request)
    }
}

#[test]
fn a01_replication_factor() {
    let mut fixture = Fixture::start();
    let topics = [3, 0, -2, -1].iter().enumerate();
    let topics = topics.map(|(place, factor)| new_topic(&format!("t{place}"), 1, *factor)).collect();
    let results = fixture.create(7, topics);
    assert_eq!(results.iter().map(|result| result.error_code).collect::<Vec<_>>(), [38, 38, 38, 0]);
    assert_eq!(results[3].replication_factor, 1);
}

#[test]
fn a02_partition_count() {
    let mut fixture = Fixture::start();
    let results =
        fixture.create(7, vec![new_topic("zero", 0, 1), new_topic("less", -2, 1), new_topic("d", -1, 1)]);
    assert_eq!(results.iter().map(|result| result.error_code).collect::<Vec<_>>(), [37, 37, 0]);
    assert_eq!(results[2].num_partitions, 1);
    assert_eq!(fixture.partitions("d"), Some(vec![0]));
    let many = fixture.create(7, vec![new_topic("many", 20_000, 1)]).remove(0);
    assert_eq!(many.error_code, 44, "{many:?}");
}

#[test]
fn a03_what_create_topics_returns() {
    let mut fixture = Fixture::start();
    for version in [5, 7] {
        let mut new = new_topic(&format!("t{version}"), 3, 1);
        new.configs = vec![setting("retention.ms", Some("5000"))];
        let made = fixture.create(version, vec![new]).remove(0);
        assert_eq!((made.error_code, made.num_partitions, made.replication_factor), (0, 3, 1));
        assert_eq!(made.topic_id.is_nil(), version < 7);
        let configs = made.configs.expect("settings are told from v5 on");
        assert_eq!(configs.len(), 37);
        for config in configs {
            let expected = if &*config.name == "retention.ms" { SET_ON_TOPIC } else { DEFAULT };
            assert_eq!(config.config_source, expected, "{}", &*config.name);
            assert!(!config.read_only && !config.is_sensitive && config.value.is_some());
        }
    }
}

#[test]
fn a04_bad_config_values_make_no_topic() {
    let mut fixture = Fixture::start();
    for (key, value) in [
        ("compression.type", Some("foo")),
        ("cleanup.policy", Some("compactt")),
        ("cleanup.policy", Some(",")),
        ("retention.ms", Some("abc")),
        ("retention.ms", Some("-2")),
        ("retention.ms", Some("")),
        ("segment.bytes", Some("5")),
        ("min.cleanable.dirty.ratio", Some("1.5")),
        ("preallocate", Some("yes")),
        ("no.such.setting", Some("1")),
        ("retention.ms", None),
    ] {
        let mut new = new_topic("t", 1, 1);
        new.configs = vec![setting(key, value)];
        let result = fixture.create(7, vec![new]).remove(0);
        assert_eq!(result.error_code, 40, "{key}={value:?}");
        let message = result.error_message.expect("a text");
        assert!(message.contains(key), "{message:?}");
        assert_eq!(fixture.partitions("t"), None);
    }
}

#[test]
fn a08_partitions_are_added_behind_the_others() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 2);
    assert_eq!([fixture.grow("t", 2), fixture.grow("t", 1), fixture.grow("t", 0)], [37, 37, 37]);
    assert_eq!(fixture.grow("t", 5), 0);
    assert_eq!(fixture.partitions("t"), Some(vec![0, 1, 2, 3, 4]));
    assert_eq!(fixture.grow("t", 20_000), 44);
    assert_eq!(fixture.grow("nope", 5), 3);
    fixture.kill_and_restart();
    assert_eq!(fixture.partitions("t"), Some(vec![0, 1, 2, 3, 4]));
    let twice = CreatePartitionsTopic::default().with_name(topic_name("t")).with_count(7);
    assert_eq!(fixture.grow_as(vec![twice.clone(), twice]), [42]);
}

#[test]
fn replicas_of_added_partitions_can_be_assigned_to_this_broker() {
    let mut fixture = Fixture::start();
    fixture.topic("t", 1);
    for (brokers, code) in [
        (vec![vec![2]], 39),
        (vec![vec![1, 1]], 39),
        (vec![vec![]], 39),
        (vec![], 39),
        (vec![vec![1], vec![1]], 39),
        (vec![vec![1]], 0),
    ] {
        let assignments = brokers.iter().map(|ids: &Vec<i32>| {
            CreatePartitionsAssignment::default()
                .with_broker_ids(ids.iter().map(|id| BrokerId(*id)).collect())
        });
        let topic = CreatePartitionsTopic::default()
            .with_name(topic_name("t"))
            .with_count(2)
            .with_assignments(Some(assignments.collect()));
        assert_eq!(fixture.grow_as(vec![topic]), [code], "{brokers:?}");
    }
    assert_eq!(fixture.partitions("t"), Some(vec![0, 1]));
}

#[test]
fn replicas_of_new_topics_can_be_assigned_to_this_broker() {
    let mut fixture = Fixture::start();
    let mut place = 0;
    let mut assign = |given: &[(i32, &[i32])], partitions, factor| {
        place += 1;
        let mut new = new_topic(&format!("t{place}"), partitions, factor);
        new.assignments = given
            .iter()
            .map(|(index, ids)| {
                CreatableReplicaAssignment::default()
                    .with_partition_index(*index)
                    .with_broker_ids(ids.iter().map(|id| BrokerId(*id)).collect())
            })
            .collect();
        let result = fixture.create(7, vec![new]).remove(0);
        (result.error_code, result.num_partitions)
    };
    assert_eq!(assign(&[(0, &[1]), (1, &[1])], -1, -1), (0, 2));
    assert_eq!(assign(&[(0, &[1])], 1, -1).0, 42);
    assert_eq!(assign(&[(0, &[1])], -1, 1).0, 42);
    assert_eq!(assign(&[(0, &[2])], -1, -1).0, 39);
    assert_eq!(assign(&[(1, &[1])], -1, -1).0, 39);
    assert_eq!(assign(&[(0, &[1]), (0, &[1])], -1, -1).0, 39);
}

#[test]
fn a12_a_walk_over_partitions() {
    let mut fixture = Fixture::start();
    fixture.topic("a", 3);
    fixture.topic("b", 2);
    let asked = ["b", "m", "a"];
    let mut cursor: Option<(String, i32)> = None;
    let mut pages = Vec::new();
    loop {
        let from = cursor.as_ref().map(|(name, index)| (name.as_str(), *index));
        let page = fixture.walk(&asked, 2, from);
        pages.push(told(&page));
        match page.next_cursor {
            Some(next) => cursor = Some((next.topic_name.to_string(), next.partition_index)),
            None => break,
        }
    }
    let page = |topics: &[(&str, i16, &[i32])]| -> Vec<(String, i16, Vec<i32>)> {
        topics.iter().map(|(name, error, indexes)| ((*name).to_owned(), *error, indexes.to_vec())).collect()
    };
    assert_eq!(
        pages,
        [
            page(&[("a", 0, &[0, 1])]),
            page(&[("a", 0, &[2]), ("b", 0, &[0])]),
            page(&[("b", 0, &[1]), ("m", 3, &[])]),
        ]
    );
    for limit in [0, -5] {
        assert_eq!(told(&fixture.walk(&asked, limit, None)), page(&[("a", 0, &[0])]));
    }
    let all = fixture.walk(&[], 2000, None);
    assert_eq!(told(&all), page(&[("a", 0, &[0, 1, 2]), ("b", 0, &[0, 1])]));
    for partition in all.topics.iter().flat_map(|topic| &topic.partitions) {
        assert_eq!(partition.eligible_leader_replicas.as_deref(), Some(&[][..]));
        assert_eq!(partition.last_known_elr.as_deref(), Some(&[][..]));
        assert_eq!(
            (&*partition.replica_nodes, &*partition.isr_nodes),
            (&[BrokerId(1)][..], &[BrokerId(1)][..])
        );
    }
}

/// Name, error and partition indexes of each topic of a page.
fn told(page: &DescribeTopicPartitionsResponse) -> Vec<(String, i16, Vec<i32>)> {
    let topics = page.topics.iter().map(|topic| {
        let name = topic.name.as_ref().map(|name| name.to_string()).unwrap_or_default();
        let indexes = topic.partitions.iter().map(|partition| partition.partition_index).collect();
        (name, topic.error_code, indexes)
    });
    topics.collect()
}

#[test]
fn a12_a_topic_that_goes_does_not_stop_the_walk() {
    let mut fixture = Fixture::start();
    for name in ["a", "b", "c"] {
        fixture.topic(name, 3);
    }
    let first = fixture.walk(&["a", "b", "c"], 4, None);
    let cursor = first.next_cursor.expect("there is more");
    assert_eq!((&**cursor.topic_name, cursor.partition_index), ("b", 1));
    assert_eq!(fixture.delete(vec![by_name("b")]), [0]);
    let rest = fixture.walk(&["a", "b", "c"], 4, Some(("b", 1)));
    assert_eq!(told(&rest), [("b".to_owned(), 3, vec![]), ("c".to_owned(), 0, vec![0, 1, 2])]);
    // Without names the gone topic is passed over.
    let rest = fixture.walk(&[], 4, Some(("b", 1)));
    assert_eq!(told(&rest), [("c".to_owned(), 0, vec![0, 1, 2])]);
    for bad in [("a", -1), ("z", 0)] {
        let refused = fixture.walk(&["a", "c"], 4, Some(bad));
        assert!(refused.topics.iter().all(|topic| topic.error_code == 42), "{bad:?}");
    }
}

fn by_name(name: &str) -> DeleteTopicState {
    DeleteTopicState::default().with_name(Some(topic_name(name)))
}

#[test]
fn a13_the_longest_name() {
    let mut fixture = Fixture::start();
    let name: String = "aZ9._-".chars().cycle().take(249).collect();
    fixture.topic(&name, 1);
    assert_eq!(fixture.produce(&name, &[1], Codec::None), (0, 0));
    assert_eq!(fixture.describe(TOPIC, &name, None).configs.len(), 37);
    fixture.kill_and_restart();
    assert_eq!(fixture.produce(&name, &[1], Codec::None), (0, 1));
    assert_eq!(fixture.delete(vec![by_name(&name)]), [0]);
    assert_eq!(fixture.partitions(&name), None);
    for bad in [&"n".repeat(250), ".", "..", "", "a b", "a/b", "../x", "ä"] {
        let result = fixture.create(7, vec![new_topic(bad, 1, 1)]).remove(0);
        assert_eq!(result.error_code, 17, "{bad:?}");
    }
}

#[test]
fn a14_names_that_metrics_could_not_tell_apart() {
    let mut fixture = Fixture::start();
    fixture.topic("x.a", 1);
    let result = fixture.create(7, vec![new_topic("x_a", 1, 1)]).remove(0);
    assert_eq!(result.error_code, 17);
    let again = fixture.create(7, vec![new_topic("x.a", 1, 1)]).remove(0);
    assert_eq!(again.error_code, 36);
}

#[test]
fn checking_and_timing_out_make_nothing() {
    let mut fixture = Fixture::start();
    let request = |name: &str, timeout_ms, validate_only| {
        CreateTopicsRequest::default()
            .with_topics(vec![new_topic(name, 2, 1)])
            .with_timeout_ms(timeout_ms)
            .with_validate_only(validate_only)
    };
    let checked = fixture.client.call(7, &request("t", 1000, true)).topics.remove(0);
    assert_eq!((checked.error_code, checked.num_partitions), (0, 2));
    for timeout_ms in [0, -1] {
        let late = fixture.client.call(7, &request("t", timeout_ms, false)).topics.remove(0);
        assert_eq!(late.error_code, 7);
    }
    assert_eq!(fixture.partitions("t"), None);
    let twice = fixture.create(7, vec![new_topic("t", 1, 1), new_topic("u", 1, 1), new_topic("t", 1, 1)]);
    let codes: Vec<(String, i16)> =
        twice.iter().map(|result| (result.name.to_string(), result.error_code)).collect();
    assert_eq!(codes, [("t".to_owned(), 42), ("u".to_owned(), 0)]);
}

#[test]
fn topics_are_deleted_by_name_or_id() {
    let mut fixture = Fixture::start();
    let ids: Vec<_> = ["a", "b", "c"].iter().map(|name| fixture.topic(name, 1).topic_id).collect();
    let by_id = |id| DeleteTopicState::default().with_name(None).with_topic_id(id);
    assert_eq!(fixture.delete(vec![by_name("a"), by_id(ids[1]), by_name("nope")]), [0, 0, 3]);
    assert_eq!(fixture.delete(vec![by_id(ids[1])]), [100]);
    let both = by_name("c").with_topic_id(ids[2]);
    let neither = DeleteTopicState::default().with_name(None);
    assert_eq!(fixture.delete(vec![both, neither]), [42, 42]);
    assert_eq!(fixture.delete(vec![by_name("c"), by_name("c")]), [42]);
    let late = DeleteTopicsRequest::default().with_topics(vec![by_name("c")]).with_timeout_ms(0);
    assert_eq!(fixture.client.call(6, &late).responses[0].error_code, 7);
    fixture.kill_and_restart();
    assert_eq!([fixture.partitions("a"), fixture.partitions("b")], [None, None]);
    assert_eq!(fixture.partitions("c"), Some(vec![0]));
    let older = DeleteTopicsRequest::default().with_topic_names(vec![topic_name("c")]).with_timeout_ms(1000);
    assert_eq!(fixture.client.call(5, &older).responses[0].error_code, 0);
}

#[test]
fn deleting_can_be_switched_off() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("server.properties");
    std::fs::write(&file, "delete.topic.enable=false\n").expect("it can be written");
    let mut fixture = Fixture::start_with(&["--config", file.to_str().expect("a plain path")]);
    fixture.topic("t", 1);
    let request =
        DeleteTopicsRequest::default().with_topic_names(vec![topic_name("t")]).with_timeout_ms(1000);
    assert_eq!(fixture.client.call(5, &request).responses[0].error_code, 73);
    assert_eq!(fixture.client.call(2, &request).responses[0].error_code, 42);
    assert_eq!(fixture.partitions("t"), Some(vec![0]));
}
