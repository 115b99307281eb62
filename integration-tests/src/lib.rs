//! Tests of the whole: layers and house rules, the wire, foreign clients, the simulation.

pub mod layering;
pub mod tidy;
