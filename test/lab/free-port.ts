import { createServer, type Server } from 'node:net';

/**
 * Ports that no system gives out by itself (Linux: from 32768, others: from 49152), so that none is taken by a stranger's
 * connection between its choice and its use, or while who listens on it is being started anew. Each process has a part
 * of its own for the same reason: its first port says so, at which the process listens until it ends.
 */
const FIRST_PORT = 12_000;
const PARTS = 160;
const PART_PORTS = 128;

/** Likewise for the displays of a node's guests: libvirt looks for a free port, and leaves QEMU time to find it taken. */
const FIRST_DISPLAY_PORT = 6_000;
const DISPLAY_PARTS = 150;
const NODES_OF_A_PART = 4;
const DISPLAYS_OF_A_NODE = 10;

/** Of the process, whatever loads this module anew in it. */
const OWN_PART = Symbol.for('virtkeep.ports');
const kept = process as unknown as Record<symbol, Promise<{ first: number; next: number }> | undefined>;

let nextNode = 0;

/** Ports for the displays of a node that this process starts, both included. */
export function displayPorts(): { first: number; last: number } {
  const node = (process.pid % DISPLAY_PARTS) * NODES_OF_A_PART + (nextNode++ % NODES_OF_A_PART);
  const first = FIRST_DISPLAY_PORT + node * DISPLAYS_OF_A_NODE;
  return { first, last: first + DISPLAYS_OF_A_NODE - 1 };
}

/** A TCP port of 127.0.0.1 that is free now, and given out by this process once. @throws Error when there is none */
export async function freePort(): Promise<number> {
  kept[OWN_PART] ??= claimPart();
  const part = await kept[OWN_PART];
  for (let tries = 1; tries < PART_PORTS; tries++) {
    const port = part.first + 1 + (part.next++ % (PART_PORTS - 1));
    if (await isFree(port)) return port;
  }
  throw new Error(`no port from ${part.first} to ${part.first + PART_PORTS - 1} is free`);
}

async function claimPart(): Promise<{ first: number; next: number }> {
  for (let tries = 0; tries < PARTS; tries++) {
    const first = FIRST_PORT + ((process.pid + tries) % PARTS) * PART_PORTS;
    const claim = await listenAt(first);
    if (!claim) continue;
    claim.unref();
    return { first, next: 0 };
  }
  throw new Error('all parts of the ports for tests are taken');
}

async function isFree(port: number): Promise<boolean> {
  const server = await listenAt(port);
  if (server) await new Promise(resolve => server.close(resolve));
  return server !== undefined;
}

/** Undefined: somebody else does. */
function listenAt(port: number): Promise<Server | undefined> {
  return new Promise(resolve => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}
