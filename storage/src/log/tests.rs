mod append;
mod recovery;
