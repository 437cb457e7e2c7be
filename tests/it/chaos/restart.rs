//! Restarting everything replays what was unfinished and nothing else; a loss shows in the books.
