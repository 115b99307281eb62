//! tests of the whole: wire, clients, simulation.
