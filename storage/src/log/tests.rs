mod append;
mod crashes;
mod flush;
mod recovery;
mod retention;
mod times;
mod transactions;
mod transactions_model;
