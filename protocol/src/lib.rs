//! frames, headers, the table of APIs and versions, codecs and error codes.
