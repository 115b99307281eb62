//! Tests of the whole: layers and house rules, the wire, foreign clients, the simulation.

pub mod api_client;
pub mod broker_process;
pub mod event_log;
pub mod foreign;
pub mod layering;
pub mod metrics_page;
pub mod order_checker;
pub mod process;
pub mod real_time;
pub mod share_member;
pub mod share_run;
pub mod sim;
pub mod test_broker;
pub mod tidy;
