/**
 * A scripted guest agent on a unix socket: it answers like qemu-ga and fails on command (hangs, dies while frozen, lies).
 * Needs a guest whose definition has `agent: <socket path>` (domain-xml.ts); start this before the guest.
 *
 * QEMU and libvirt each dial the socket, and the second connection is libvirt's; messages are JSON lines, 0xFF bytes are
 * resynchronisation marks. A peer that dies is not dialled again until the guest restarts.
 */
import { mkdirSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { dirname } from 'node:path';

/** What a handler may answer: a value, an agent error, any bytes, something later, silence, or the end of the agent. */
export type Answer =
  | { return: unknown }
  | { error: { class: string; desc: string } }
  | { raw: string }
  | { after: Promise<void>; answer: Answer }
  | 'hang'
  | 'die';

export type Handler = (args: Record<string, unknown>) => Answer;

const MAX_REQUEST_BYTES = 1024 * 1024;

export class FakeAgent {
  readonly socketPath: string;
  /** Every command received, in order. */
  readonly calls: { execute: string; arguments: Record<string, unknown> }[] = [];
  frozen = false;
  /** It answers nothing at all, like a stopped process. */
  stopped = false;
  readonly #handlers: Map<string, Handler>;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;

  constructor(socketPath: string, handlers: Record<string, Handler> = {}) {
    this.socketPath = socketPath;
    this.#handlers = new Map(Object.entries({ ...this.#ordinary(), ...handlers }));
  }

  /** Replaces the answer to one command. */
  on(command: string, handler: Handler): this {
    this.#handlers.set(command, handler);
    return this;
  }

  async listen(): Promise<this> {
    mkdirSync(dirname(this.socketPath), { recursive: true });
    rmSync(this.socketPath, { force: true });
    const server = createServer(socket => this.#serve(socket));
    this.#server = server;
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(this.socketPath, resolve);
    });
    return this;
  }

  /** Ends the agent as a crash would: the connection drops. */
  die(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.die();
    await new Promise(resolve => (this.#server ? this.#server.close(resolve) : resolve(undefined)));
    rmSync(this.socketPath, { force: true });
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => {}).once('close', () => this.#sockets.delete(socket));
    let buffered = '';
    socket.on('data', bytes => {
      buffered += bytes.filter(byte => byte !== 0xff).toString();
      if (buffered.length > MAX_REQUEST_BYTES) socket.destroy();
      for (let end = buffered.indexOf('\n'); end >= 0; end = buffered.indexOf('\n')) {
        const line = buffered.slice(0, end).trim();
        buffered = buffered.slice(end + 1);
        if (line) this.#answer(socket, line);
      }
    });
  }

  #answer(socket: Socket, line: string): void {
    const request = JSON.parse(line) as { execute: string; arguments?: Record<string, unknown> };
    const call = { execute: request.execute, arguments: request.arguments ?? {} };
    this.calls.push(call);
    if (this.stopped) return;
    const handler = this.#handlers.get(call.execute);
    this.#give(socket, handler?.(call.arguments) ?? commandNotFound(call.execute));
  }

  #give(socket: Socket, answer: Answer): void {
    if (answer === 'hang') return;
    if (answer === 'die') this.die();
    else if ('after' in answer) void answer.after.then(() => this.#give(socket, answer.answer));
    else if ('raw' in answer) socket.write(answer.raw);
    else socket.write(`${inAscii(JSON.stringify(answer))}\n`);
  }

  #ordinary(): Record<string, Handler> {
    const known = () => ({
      version: '7.2.0',
      supported_commands: [...this.#handlers.keys()].map(name => ({
        name,
        enabled: true,
        'success-response': true,
      })),
    });
    return {
      'guest-sync': ({ id }) => ({ return: id }),
      'guest-sync-delimited': ({ id }) => ({ return: id }),
      'guest-ping': () => ({ return: {} }),
      'guest-info': () => ({ return: known() }),
      'guest-fsfreeze-status': () => ({ return: this.frozen ? 'frozen' : 'thawed' }),
      'guest-fsfreeze-freeze': () => {
        this.frozen = true;
        return { return: 1 };
      },
      'guest-fsfreeze-thaw': () => {
        this.frozen = false;
        return { return: 1 };
      },
      'guest-get-osinfo': () => ({ return: { id: 'mswindows', name: 'Microsoft Windows', version: '10' } }),
      'guest-get-host-name': () => ({ return: { 'host-name': 'SCRIPTED' } }),
      'guest-network-get-interfaces': () => ({ return: [] }),
      'guest-get-fsinfo': () => ({ return: [] }),
    };
  }
}

/** As QEMU writes JSON, in its monitor and in the agent. json-c 0.18, by which libvirt 11 reads it, refuses anything else (its issue 875). */
const inAscii = (json: string) =>
  json.replaceAll(/[\u007f-\uffff]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

function commandNotFound(command: string): Answer {
  return { error: { class: 'CommandNotFound', desc: `The command ${command} has not been found` } };
}
