//! DER elements of a file, and where they lie.

use hypergrove::pkcs8::der::{self, AnyRef, Decode, Reader, SliceReader, Tag, Tagged};
use std::ops::Range;

/// The first byte of every DER key, and of a version in it.
pub(crate) const DER_SEQUENCE: u8 = 0x30;

/// A DER element of a file.
pub(crate) struct Element {
    pub(crate) tag: Tag,
    /// With tag and length.
    pub(crate) whole: Range<usize>,
    pub(crate) content: Range<usize>,
}

/// The DER elements that follow each other in this stretch of the file.
pub(crate) fn elements(file: &[u8], stretch: Range<usize>) -> der::Result<Vec<Element>> {
    let mut reader = SliceReader::new(&file[stretch.clone()])?;
    let mut elements = Vec::new();
    let mut start = stretch.start;
    while !reader.is_finished() {
        let element = AnyRef::decode(&mut reader)?;
        let end = stretch.start + usize::try_from(reader.position())?;
        elements.push(Element { tag: element.tag(), whole: start..end, content: end - element.value().len()..end });
        start = end;
    }
    Ok(elements)
}
