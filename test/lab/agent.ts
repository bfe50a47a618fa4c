import { mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { startedQuickly } from '../../agent/src/lean-process.ts';
import { Daemon } from './daemon.ts';
import { freePort } from './free-port.ts';
import type { LabNode } from './node.ts';
import { NODE_BIN, programFile } from './paths.ts';
import type { Rest } from './rest.ts';
import { run } from './run.ts';

/** Variable: agents start without what saves memory alone; for the many tests that look at something else. */
export const QUICK_STARTS = 'VIRTKEEP_TEST_QUICK_STARTS';

export interface AgentOptions {
  node: LabNode;
  dir: string;
  /** Where it listens; default: this machine. */
  host?: string;
  /** Default: a free one. */
  port?: number;
  /** Further settings, merged over ours at the top level. */
  settings?: Record<string, unknown>;
}

/** The agent of a lab node; it runs inside the node, where all paths are as in production. */
export class LabAgent {
  readonly node: LabNode;
  readonly dir: string;
  readonly port: number;
  readonly daemon: Daemon;

  constructor(node: LabNode, dir: string, { host, port }: { host: string; port: number }) {
    this.node = node;
    this.dir = dir;
    this.port = port;
    this.daemon = new Daemon({
      name: `agent of ${node.name}`,
      argv: agentArgv(dir),
      logFile: join(dir, 'agent.log'),
      ...(process.env[QUICK_STARTS] && { env: startedQuickly() }),
      node,
      ready: () => listens(host, port),
    });
  }

  /** Uuid of the node in the product. */
  get nodeId(): string {
    return this.node.hostUuid;
  }

  /** Directory of its journal and other state. */
  get stateDir(): string {
    return join(this.dir, 'state');
  }

  /** Enrols the node as an administrator does: a token of the controller, handed to the agent. */
  async enrol(controllerUrl: string, rest: Rest): Promise<void> {
    const { token } = await rest.ok<{ token: string }>('POST', '/api/nodes/', {
      verbose_name: this.node.name,
    });
    const argv = [
      NODE_BIN,
      programFile('virtkeep-agent'),
      'enroll',
      '--config',
      join(this.dir, 'agent.yaml'),
    ];
    // the token comes through stdin, so no list of processes shows it
    await run(this.node.insideArgv([...argv, '--controller', controllerUrl, '--token', '-']), {
      input: token,
    });
  }
}

/** Settings and port of an agent; after `enrol`, `daemon.start()` starts it. */
export async function makeAgent(options: AgentOptions): Promise<LabAgent> {
  const { node, dir, host = '127.0.0.1' } = options;
  const port = options.port ?? (await freePort());
  mkdirSync(dir, { recursive: true });
  const settings = {
    state_dir: join(dir, 'state'),
    listen: { address: host, port },
    advertise: { address: host },
    tls: { dir: join(dir, 'tls') },
    base_data_pool: node.pool(0).name,
    shutdown: { drain_timeout_seconds: 1, undo_timeout_seconds: 30 },
    log: { level: 'debug' },
    ...options.settings,
  };
  writeFileSync(join(dir, 'agent.yaml'), stringify(settings));
  return new LabAgent(node, dir, { host, port });
}

export function agentArgv(dir: string): [string, ...string[]] {
  return [NODE_BIN, programFile('virtkeep-agent'), '--config', join(dir, 'agent.yaml')];
}

function listens(host: string, port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, host, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
