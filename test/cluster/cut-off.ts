/** The controller that acts is cut off from the nodes, and not from the database: another one has to take its turn. */
import { waitFor } from '../lab/run.ts';
import type { ClusterWorld } from './world.ts';

/** It is taken for a cut after a minute. */
const MOST_MS = 180_000;

/** @returns how long it took until all nodes were reached again, ms */
export async function cutOffFromNodes(world: ClusterWorld): Promise<number> {
  const areReached = async () => {
    const nodes = await world.admin.list<{ status: string }>('/api/nodes/');
    return nodes.every(({ status }) => status === 'ACTIVE');
  };
  await waitFor('all nodes to be connected', areReached, MOST_MS);
  const victim = world.acting()!;
  const beganMs = performance.now();
  const heal = await world.cut(victim, 'nodes');
  await waitFor('another controller to act', () => world.acting([victim]) !== undefined, MOST_MS);
  await waitFor('all nodes to be connected', areReached, MOST_MS);
  const tookMs = performance.now() - beganMs;
  await heal();
  return tookMs;
}
