//! A way to a server on which bytes are late, don't arrive, or end in the middle: a TCP proxy.

use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// What happens to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// They arrive.
    Clear,
    /// So late.
    Slow(Duration),
    /// Not before it is over; then of every other connection never.
    Silent,
    /// Half of the next ones, and the connection is over.
    Halved,
    /// The connection is over, and no other is made.
    Cut,
}

/// The way. It ends with the runtime that it was made in.
pub struct Way {
    pub address: SocketAddr,
    weather: watch::Sender<(Weather, Reach)>,
}

/// Which connections a weather meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    All,
    /// The first, third, …
    Odd,
    Even,
}

impl Reach {
    fn meets(self, number: usize) -> bool {
        match self {
            Self::All => true,
            Self::Odd => number % 2 == 1,
            Self::Even => number.is_multiple_of(2),
        }
    }
}

impl Way {
    /// To the server that listens there, e.g. `127.0.0.1:4222`.
    pub async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (weather, _) = watch::channel((Weather::Clear, Reach::All));
        let changes = weather.clone();
        tokio::spawn(async move {
            for number in 1.. {
                let Ok((client, _)) = listener.accept().await else { return };
                let changes = changes.subscribe();
                if weather_of(&changes, number) == Weather::Cut {
                    continue;
                }
                let server = server.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    connection(number, client, server, changes).await;
                });
            }
        });
        Self { address, weather }
    }

    /// From now on.
    pub fn set(&self, weather: Weather, reach: Reach) {
        self.weather.send_replace((weather, reach));
    }
}

fn weather_of(changes: &watch::Receiver<(Weather, Reach)>, number: usize) -> Weather {
    let (weather, reach) = *changes.borrow();
    if reach.meets(number) { weather } else { Weather::Clear }
}

type Changes = watch::Receiver<(Weather, Reach)>;

/// Both directions, until either is over.
async fn connection(number: usize, client: TcpStream, server: TcpStream, changes: Changes) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = pass(number, from_client, to_server, changes.clone()) => {}
        () = pass(number, from_server, to_client, changes) => {}
    }
}

async fn pass(number: usize, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut changes: Changes) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            _ = changes.wait_for(|(weather, reach)| *weather == Weather::Cut && reach.meets(number)) => return,
        };
        let Ok(n @ 1..) = read else { return };
        match weather_of(&changes, number) {
            Weather::Clear => {}
            Weather::Slow(late) => sleep(late).await,
            Weather::Silent => {
                let _ = changes.wait_for(|(weather, _)| *weather != Weather::Silent).await;
                if number.is_multiple_of(2) {
                    return;
                }
            }
            Weather::Halved => {
                let _ = to.write_all(&bytes[..n / 2]).await;
                return;
            }
            Weather::Cut => return,
        }
        if to.write_all(&bytes[..n]).await.is_err() {
            return;
        }
    }
}
