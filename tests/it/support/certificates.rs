//! Certificates for servers that speak TLS.

use std::path::Path;
use std::process::Command;

/// A certificate authority, a server's certificate for 127.0.0.1 and the names that `HttpProxy` knows, and a client's, by
/// `openssl`.
pub fn certificates(dir: &Path) {
    let run = |args: &str| {
        let output = Command::new("openssl").args(args.split(' ')).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    run(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-authority"));
    std::fs::write(dir.join("server.ext"), "subjectAltName=IP:127.0.0.1,DNS:*.proxied.example\n").unwrap();
    std::fs::write(dir.join("client.ext"), "extendedKeyUsage=clientAuth\n").unwrap();
    for name in ["server", "client"] {
        run(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        run(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile {name}.ext"
        ));
    }
}
