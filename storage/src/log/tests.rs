mod append;
mod crashes;
mod recovery;
mod retention;
mod times;
