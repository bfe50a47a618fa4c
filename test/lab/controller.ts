import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { Daemon } from './daemon.ts';
import { freePort } from './free-port.ts';
import { NODE_BIN, programFile } from './paths.ts';
import { Rest } from './rest.ts';

export const ADMIN = 'admin';
const HERE = '127.0.0.1';

export interface ControllerOptions {
  dir: string;
  /** Default: a free one. */
  port?: number;
  /** Where it listens; default: this machine. */
  host?: string;
  /** What runs it elsewhere, as in a network namespace. */
  inside?: readonly string[];
  /** The first administrator's password. */
  password?: string;
  /** Further settings, merged over ours at the top level. */
  settings?: Record<string, unknown>;
}

/** A controller with its own state directory. */
export class LabController {
  readonly dir: string;
  readonly url: string;
  readonly password: string;
  readonly daemon: Daemon;

  constructor({
    dir,
    host = HERE,
    port,
    password,
    inside = [],
  }: Required<Pick<ControllerOptions, 'dir' | 'port' | 'password'>> & ControllerOptions) {
    this.dir = dir;
    this.url = `https://${host}:${port}`;
    this.password = password;
    this.daemon = new Daemon({
      name: 'controller',
      argv: [...inside, ...controllerArgv(dir)] as [string, ...string[]],
      logFile: join(dir, 'controller.log'),
      ready: () => this.#isReady(),
    });
  }

  /** The CA that signed the controller's certificate, made at its first start. */
  get caFile(): string {
    return join(this.dir, 'state', 'pki', 'ca.crt');
  }

  /** A client without login. */
  anonymous(): Rest {
    return new Rest(this.url, readFileSync(this.caFile, 'utf8'), undefined, true);
  }

  /** A client logged in as the first administrator. */
  admin(): Promise<Rest> {
    return this.anonymous().login(ADMIN, this.password);
  }

  async #isReady(): Promise<boolean> {
    if (!existsSync(this.caFile)) return false;
    return this.anonymous()
      .send('GET', '/readyz')
      .then(
        ({ status }) => status === 200,
        () => false,
      );
  }
}

/** Settings, password file and port of a controller; `daemon.start()` starts it. */
export async function makeController(options: ControllerOptions): Promise<LabController> {
  const { dir, host = HERE, password = 'lab-Passw0rd' } = options;
  const port = options.port ?? (await freePort());
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, 'admin-password'), `${password}\n`, { mode: 0o600 });
  const settings = {
    state_dir: join(dir, 'state'),
    log_level: 'debug',
    listen: { host, port },
    tls: { names: [HERE, 'localhost', host] },
    initial_admin: { username: ADMIN, password_file: join(dir, 'admin-password') },
    ...options.settings,
  };
  writeFileSync(join(dir, 'controller.yaml'), stringify(settings));
  return new LabController({ ...options, port, password });
}

export function controllerArgv(dir: string): [string, ...string[]] {
  return [NODE_BIN, programFile('virtkeep-controller'), '--config', join(dir, 'controller.yaml')];
}
