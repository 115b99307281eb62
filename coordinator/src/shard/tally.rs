//! Results of a request's parts, which come in any order.

/// Collects one result a part.
#[derive(Debug)]
pub(super) struct Tally<T> {
    results: Vec<Option<T>>,
    open: usize,
}

impl<T> Tally<T> {
    /// For this many parts, none of them done.
    pub(super) fn new(parts: usize) -> Self {
        Self { results: std::iter::repeat_with(|| None).take(parts).collect(), open: parts }
    }

    /// Notes the result of a part. Each part has one.
    pub(super) fn put(&mut self, index: usize, result: T) {
        let place = &mut self.results[index];
        assert!(place.is_none(), "a part has one result");
        *place = Some(result);
        self.open -= 1;
    }

    /// Whether every part has its result.
    pub(super) fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// The results, in the order of the parts; those that are still open are left out.
    pub(super) fn into_results(self) -> Vec<T> {
        self.results.into_iter().flatten().collect()
    }
}
