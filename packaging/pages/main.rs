//! What a package has beside the program: manual pages, completions for shells, and the version of its stores, all from
//! where they are kept: the command line (`src/cli.rs`), `docs/configuration.md`, `docs/operations.md`.
//!
//! ```text
//! cargo run --example pages -- DIRECTORY
//! ```

mod roff;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use tidegate::cli;
use tidegate::store::writer::Writer;

const CONFIGURATION: &str = include_str!("../../docs/configuration.md");
const OPERATIONS: &str = include_str!("../../docs/operations.md");

/// What each page begins with, and ends with.
const FILES: &str = "\
| file | what it is |
|---|---|
| `/etc/tidegate/tidegate.toml` | the configuration: **tidegate.toml**(5) |
| `/var/lib/tidegate/store` | the store: state, and what waits for the centre |
| `/run/tidegate/tidegate.sock` | where `tidegate status` and `tidegate device` ask |
| `/usr/share/doc/tidegate` | the documents, and an example for mosquitto |
";

const ENVIRONMENT: &str = "\
| variable | what it is |
|---|---|
| `TIDEGATE_CONFIG` | the configuration where no `--config` names one |
| `TIDEGATE_SECTION__OPTION` | an option, over all files: **tidegate.toml**(5) |
| `TIDEGATE_LOG` | what is logged, such as `warn,tidegate=debug` |
| `NO_COLOR` | set: no colours |
";

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.ok_or("usage: pages DIRECTORY")?;
    manuals(&directory.join("man"))?;
    completions(&directory.join("completions"))?;
    fs::write(directory.join("written-by"), format!("{}\n", Writer::this()))?;
    Ok(())
}

fn manuals(directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    let mut program = cli::command().disable_help_subcommand(true);
    program.build();
    for command in flattened(&program) {
        fs::write(directory.join(format!("{}.1", command.get_name())), page(&command)?)?;
    }
    let title = roff::title("tidegate.toml", 5, "configuration of the gateway agent tidegate");
    fs::write(directory.join("tidegate.toml.5"), title + &roff::body(CONFIGURATION))?;
    Ok(())
}

/// The command and all below it, each under the name of its page: `tidegate`, `tidegate-device`, `tidegate-device-list`.
fn flattened(command: &Command) -> Vec<Command> {
    let name = command.get_bin_name().unwrap_or(command.get_name()).replace(' ', "-");
    let name: &'static str = name.leak(); // as clap wants it; the program ends soon
    let mut all = vec![command.clone().name(name)];
    all.extend(command.get_subcommands().flat_map(flattened));
    all
}

fn page(command: &Command) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut page = Vec::new();
    Man::new(command.clone()).section("1").render(&mut page)?;
    if command.get_name() == "tidegate" {
        let codes = roff::section(OPERATIONS, "## Exit codes").ok_or("no exit codes")?;
        for (heading, text) in
            [("Exit status", &codes[..]), ("Environment", ENVIRONMENT), ("Files", FILES)]
        {
            page.extend(roff::body(&format!("## {heading}\n\n{text}")).bytes());
        }
    }
    Ok(page)
}

fn completions(directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(directory)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut cli::command(), "tidegate", directory)?;
    }
    Ok(())
}
