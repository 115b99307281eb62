//! Plans: what goes out to whom, decided apart from how it is read.

pub(crate) mod budget;
pub(crate) mod fairness;
pub(crate) mod share_fetch;
