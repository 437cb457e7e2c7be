//! Processes of the public binary that are killed with SIGKILL, and where that hit them.

use super::worker_logs::{Hits, Places, Trail};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SIGKILL: i32 = 9;

/// What all processes of one run share.
#[derive(Clone)]
pub struct Fleet {
    binary: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    pub dir: PathBuf,
    pub trail: Arc<Mutex<Trail>>,
    /// A process that says this stage next is killed on the spot.
    aim: Arc<Mutex<Option<&'static str>>>,
}

/// One process.
pub struct Process {
    pub pid: u32,
    child: Arc<Mutex<Child>>,
    places: Arc<Mutex<Places>>,
    /// By the aim.
    killed: Arc<AtomicBool>,
    reader: JoinHandle<()>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// The binary of this build, or the one that `TRELLIS_CHAOS_BINARY` names.
    pub fn new(dir: &Path, args: &[&str], env: BTreeMap<String, String>) -> Self {
        let binary = std::env::var_os("TRELLIS_CHAOS_BINARY")
            .map_or_else(|| env!("CARGO_BIN_EXE_trellis").into(), PathBuf::from);
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { binary, args, env, dir: dir.to_owned(), trail: Arc::default(), aim: Arc::default() }
    }

    /// Settings of every process.
    pub fn env(&self) -> BTreeMap<String, String> {
        self.env.clone()
    }

    /// Starts one.
    pub fn start(&self) -> Process {
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRELLIS")) {
            command.env_remove(name);
        }
        command.args(&self.args).envs(&self.env).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (pid, stderr) = (child.id(), child.stderr.take().unwrap());
        lock(&self.trail).started.insert(pid, Instant::now());
        let child = Arc::new(Mutex::new(child));
        let (places, killed) = (Arc::<Mutex<Places>>::default(), Arc::<AtomicBool>::default());
        let reader = {
            let (fleet, child, places, killed) =
                (self.clone(), Arc::clone(&child), Arc::clone(&places), Arc::clone(&killed));
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    // The trigger first: what counts is how soon the process is dead.
                    if fleet.is_aimed_at(&line) && !killed.swap(true, Ordering::SeqCst) {
                        let _ = lock(&child).kill();
                    }
                    let step = lock(&fleet.trail).read(pid, &line);
                    if let Some(step) = step {
                        lock(&places).see(&step);
                    }
                }
            })
        };
        Process { pid, child, places, killed, reader }
    }

    fn is_aimed_at(&self, line: &str) -> bool {
        let mut aim = lock(&self.aim);
        let hit = aim.is_some_and(|stage| line.contains(&format!("\"stage\":\"{stage}\"")));
        if hit {
            *aim = None;
        }
        hit
    }

    /// Kills whichever process enters `stage` next; `None` when none did in time.
    pub async fn shoot(&self, processes: &[Process], stage: &'static str, patience: Duration) -> Option<usize> {
        *lock(&self.aim) = Some(stage);
        let start = Instant::now();
        loop {
            if let Some(at) = processes.iter().position(|process| process.killed.load(Ordering::SeqCst)) {
                return Some(at);
            }
            if start.elapsed() > patience && lock(&self.aim).take().is_some() {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Process {
    /// Kills it, waits for its end and says where its sessions were.
    pub fn kill(self, trail: &Mutex<Trail>) -> Hits {
        let ended = {
            let mut child = lock(&self.child);
            let before = child.try_wait().unwrap();
            let _ = child.kill();
            let status = child.wait().unwrap();
            before.filter(|_| !self.killed.load(Ordering::SeqCst)).or(Some(status))
        };
        let _ = self.reader.join();
        if ended.and_then(|status| status.signal()) != Some(SIGKILL) {
            lock(trail).trouble.push(format!("process {} ended by itself: {ended:?}", self.pid));
        }
        lock(&self.places).hits()
    }

    /// Where its sessions are now.
    pub fn hits(&self) -> Hits {
        lock(&self.places).hits()
    }
}
