//! Captured graphs: a list of deeds in order, launched again as often as asked.

use super::stream::Deed;

pub(crate) struct Graph {
    pub(crate) deeds: Vec<Deed>,
}
