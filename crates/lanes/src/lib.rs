//! lanes
