//! Cases and properties of the group coordinator.
