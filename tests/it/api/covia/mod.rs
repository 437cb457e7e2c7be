//! What Covia's agents and clients write: its inputs, operations, templates and addresses, each as it stands there.

mod inputs;
mod people;
mod places;
mod runs;
