import { createServer } from 'node:net';

/**
 * Ports that no system gives out by itself (Linux: from 32768, others: from 49152), so that none is taken by a stranger's
 * connection between its choice and its use, or while who listens on it is being started anew. Each process has a part
 * of its own for the same reason.
 */
const FIRST_PORT = 12_000;
const PARTS = 160;
const PART_PORTS = 128;

/** Likewise for the displays of a node's guests: libvirt looks for a free port, and leaves QEMU time to find it taken. */
const FIRST_DISPLAY_PORT = 6_000;
const DISPLAY_PARTS = 150;
const NODES_OF_A_PART = 4;
const DISPLAYS_OF_A_NODE = 10;

let next = 0;
let nextNode = 0;

/** Ports for the displays of a node that this process starts, both included. */
export function displayPorts(): { first: number; last: number } {
  const node = (process.pid % DISPLAY_PARTS) * NODES_OF_A_PART + (nextNode++ % NODES_OF_A_PART);
  const first = FIRST_DISPLAY_PORT + node * DISPLAYS_OF_A_NODE;
  return { first, last: first + DISPLAYS_OF_A_NODE - 1 };
}

/** A TCP port of 127.0.0.1 that is free now, and given out by this process once. @throws Error when there is none */
export async function freePort(): Promise<number> {
  const first = FIRST_PORT + (process.pid % PARTS) * PART_PORTS;
  for (let tries = 0; tries < PART_PORTS; tries++) {
    const port = first + (next++ % PART_PORTS);
    if (await isFree(port)) return port;
  }
  throw new Error(`no port from ${first} to ${first + PART_PORTS - 1} is free`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
