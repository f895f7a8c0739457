//! An event loop: callbacks put results in a list and write a byte to a pipe that the loop polls together with its sockets.

#[cfg(unix)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use hypergrove::{Engine, SLH_DSA_SHA2_128F, SignJob};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, mpsc};

    let engine = Engine::new()?;
    let key = Arc::new(engine.generate(&SLH_DSA_SHA2_128F)?);
    let (mut wakes, wake) = UnixStream::pair()?;
    // If the pipe is full, the loop has enough to wake for.
    wake.set_nonblocking(true)?;
    let wake = Arc::new(wake);
    let (results, finished) = mpsc::channel();
    for request in 0..32 {
        let message = format!("request {request}").into_bytes();
        let (results, wake) = (results.clone(), wake.clone());
        engine.submit(SignJob::new(key.clone(), message))?.on_done(move |signature| {
            let _ = results.send((request, signature));
            let _ = (&*wake).write(&[0]);
        });
    }
    let mut left = 32;
    while left > 0 {
        poll(&mut [PollFd::new(&wakes, PollFlags::IN)], None)?;
        let _ = wakes.read(&mut [0; 64])?;
        for (request, signature) in finished.try_iter() {
            println!("request {request}: {} bytes", signature?.as_bytes().len());
            left -= 1;
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn main() {
    println!("this example polls a pipe of Unix");
}
