//! What keeps a venue sound beside its work: comes in from sweeps, `trellis audit` and `trellis doctor`, goes out
//! as findings and repairs. It decides no job.

pub mod audit;
pub mod backup;
pub mod doctor;
pub mod retention;
pub mod settings;
pub mod stroll;
