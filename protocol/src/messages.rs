//! Our own codecs: what carries record bytes, and the key-share messages.
//!
//! One message a file. Versions before the first flexible one and after it are one code path: the reader and
//! the writer know which form the version has.

/// Defines a message or a part of one in which every version is flexible, with both directions of its codec.
/// Fields stand in wire order. `since N or D`: on the wire from version N on, `D` before.
macro_rules! flexible_message {
    ($(
        $(#[$meta:meta])*
        pub struct $Name:ident $(<$F:ident>)? {
            $($(#[$field_meta:meta])* $field:ident: $Ty:ty $(, since $since:literal or $default:expr)?;)*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $Name $(<$F = std::convert::Infallible>)? {
                $($(#[$field_meta])* pub $field: $Ty,)*
            }

            impl $(<$F>)? Default for $Name $(<$F>)? {
                fn default() -> Self {
                    Self { $($field: flexible_message!(@default $($default)?),)* }
                }
            }

            impl $(<$F>)? $crate::decode::Read for $Name $(<$F>)? {
                const WIRE_MIN: usize = 1 $(+ flexible_message!(@wire_min $Ty $(, $since)?))*;

                fn read(
                    reader: &mut $crate::decode::Reader,
                ) -> Result<Self, $crate::decode::DecodeError> {
                    $(let $field = flexible_message!(@read reader, $Ty $(, $since, $default)?);)*
                    reader.skip_tags()?;
                    Ok(Self { $($field,)* })
                }
            }

            impl<F: $crate::segments::SegmentLen> $crate::encode::Write<F> for $Name $(<$F>)? {
                fn write(self, writer: &mut $crate::encode::Writer<F>) {
                    $(flexible_message!(@write writer, self.$field $(, $since)?);)*
                    writer.no_tags();
                }
            }
        )*
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@wire_min $Ty:ty) => { <$Ty as $crate::decode::Read>::WIRE_MIN };
    (@wire_min $Ty:ty, $since:literal) => { 0 };
    (@read $reader:ident, $Ty:ty) => { <$Ty as $crate::decode::Read>::read($reader)? };
    (@read $reader:ident, $Ty:ty, $since:literal, $default:expr) => {
        if $reader.version() >= $since { <$Ty as $crate::decode::Read>::read($reader)? } else { $default }
    };
    (@write $writer:ident, $value:expr) => { $crate::encode::Write::write($value, $writer) };
    (@write $writer:ident, $value:expr, $since:literal) => {
        if $writer.version() >= $since {
            $crate::encode::Write::write($value, $writer);
        }
    };
}

mod common;
pub mod fetch;
pub mod key_share_acknowledge;
pub mod key_share_alter;
pub mod key_share_commit;
pub mod key_share_describe;
pub mod key_share_fetch;
pub mod produce;
pub mod share_acknowledge;
pub mod share_fetch;

pub use common::{AcknowledgeType, LeaderIdAndEpoch, NodeEndpoint, TopicRef, from_uuid, to_uuid};
