//! Tests of files on disks, one module a format. They are one program, because linking the library takes longer than most tests.

mod ledger;
mod manifest;
