/**
 * A root shell of a Debian guest on its second serial port: it answers while the guest's agent is stopped, dead, or has frozen
 * all file systems (then for what the guest has in its memory already: the shell's own commands, and programs used before).
 */
import { connect, type Socket } from 'node:net';
import type { Guest } from './guest.ts';
import { waitFor } from './run.ts';

/** A unit of its own: systemd ends what the agent's service has started when that service ends. */
const START = `systemd-run --quiet --collect -p StandardInput=tty-force -p StandardOutput=tty -p StandardError=tty \
  -p TTYPath=/dev/ttyS1 -p KillSignal=SIGKILL /bin/sh`;

export class SerialShell {
  readonly #socket: Socket;
  #heard = '';
  #commands = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8').on('data', (text: string) => {
      this.#heard += text;
    });
    socket.on('error', () => {});
  }

  /** XML of the port, for the devices of the guest. @param path of a unix socket, at most 107 bytes */
  static xml(path: string): string {
    return `<serial type='unix'><source mode='bind' path='${path}'/><target port='1'/></serial>`;
  }

  /** Starts the shell by the guest's agent. A guest that was restarted needs another one. */
  static async open(guest: Guest, path: string): Promise<SerialShell> {
    await guest.sh(START);
    const socket = connect(path);
    const shell = new SerialShell(socket);
    socket.write('\nPS1=; PS2=; stty -echo\n');
    await shell.run('true');
    return shell;
  }

  close(): void {
    this.#socket.destroy();
  }

  /** Runs a line (a list of commands in braces) and returns what it printed, without the closing newline. @throws Error when it fails */
  async run(line: string): Promise<string> {
    this.#commands += 1;
    const number = this.#commands;
    this.#heard = '';
    this.#socket.write(`echo "<${number}"; { ${line}; } 2>&1; echo ":$?>${number}"\n`);
    const answer = new RegExp(`<${number}\\r?\\n(.*?):(\\d+)>${number}\\r?\\n`, 's');
    const [, out, code] = await waitFor(
      `the shell's answer to ${line}`,
      () => answer.exec(this.#heard) ?? undefined,
      180_000,
      50,
    );
    if (code !== '0') throw new Error(`${line}: ${code} ${out}`);
    return out!.replaceAll('\r', '').trimEnd();
  }
}
