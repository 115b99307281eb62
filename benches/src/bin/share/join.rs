//! From the moment at which a share client begins to poll until it has its first record, in a group of its own.

use std::time::Duration;

use benches::keyed::keyed_batches;
use benches::side_by_side::{Durability, Pair, print};
use integration_tests::event_log::What;
use integration_tests::foreign::{Client, Probe, Role};

const LIMIT: Duration = Duration::from_secs(60);
/// And whether another share consumer of the same process had its first record before.
const CLIENTS: [(Client, bool); 7] = [
    (Client::Java44, false),
    (Client::Java44, true),
    (Client::Java42, false),
    (Client::Java42, true),
    (Client::FranzGo, false),
    (Client::Librdkafka, false),
    (Client::KeyShare, false),
];

pub(crate) fn run(pair: &Pair) {
    let logs = tempfile::tempdir().expect("a temporary folder can be made");
    for broker in &pair.brokers {
        broker.create("join", 1, Durability::Written);
        benches::requests::load(&broker.bootstrap, "join", keyed_batches(100, 10, 100, 100));
    }
    for (client, warm) in CLIENTS {
        println!(
            "from joining to the first record, {client:?}{}",
            if warm { ", the second one of its process" } else { "" }
        );
        let samples = pair.take_turns(|broker, turn| {
            if client == Client::KeyShare && !broker.is_sluice() {
                return f64::NAN;
            }
            let group = format!("join-{client:?}-{warm}-{turn}");
            broker.set_up_share_group(&group, &[]);
            let name = format!("{}-{group}", broker.name.replace(' ', "-"));
            let Some(probe) = Probe::require(client, Role::Share, &name) else { return f64::NAN };
            let mut probe = probe.option("group", &group).option("records", "1");
            if warm {
                let before = format!("{group}-before");
                broker.set_up_share_group(&before, &[]);
                probe = probe.option("warm-group", &before);
            }
            let mut running = probe.spawn(&broker.bootstrap, "join", logs.path());
            running.expect_end(LIMIT);
            let events = running.events();
            let at = |what: What| {
                events.iter().find(|event| event.what == what).map(|event| event.at_ns as f64 / 1e6)
            };
            at(What::Start).zip(at(What::Ready)).map_or(f64::NAN, |(start, ready)| start - ready)
        });
        print(pair, &samples, "ms", |ms| *ms);
    }
    for broker in &pair.brokers {
        broker.delete("join");
    }
}
