//! Upkeep of a venue beside its work: audit, backup, settings, retention. Sweeps, `trellis audit` and `trellis doctor`
//! call it; it returns findings and repairs. It decides no job.

pub mod audit;
pub mod backup;
pub mod doctor;
pub mod retention;
pub mod settings;
pub mod owner_scan;
