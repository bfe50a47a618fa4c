/** What happens to several controllers at random, one thing at a time. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { seededRandom } from '@virtkeep/shared/seeded-random';
import { signalProcess } from '../lab/processes.ts';
import { type ClusterWorld, LEASE_S } from './world.ts';

export type Mishap = 'kill' | 'stop' | 'stop-short' | 'end' | 'database';
const MISHAPS: readonly Mishap[] = ['kill', 'stop', 'stop-short', 'end', 'database'];

/**
 * Lets one thing happen, and whoever is stopped go on.
 * @returns what it was, for people
 */
export async function happen(world: ClusterWorld, random: ReturnType<typeof seededRandom>): Promise<string> {
  const mishap = MISHAPS[random(MISHAPS.length)]!;
  const acting = world.acting();
  const any = world.controllers[random(world.controllers.length)]!;
  // twice out of three times it meets the one that acts
  const victim = random(3) > 0 && acting ? acting : any;
  const { pid } = victim.daemon;
  const what = `${mishap} of ${victim === acting ? 'the one that acts' : 'one that stands by'}`;
  if (mishap === 'database') {
    await world.postgres.end(random(2) === 0 ? 'fast' : 'immediate');
    await sleep(random(LEASE_S * 1000));
    world.postgres.begin();
    return mishap;
  }
  if (pid === undefined) return 'nothing: it had ended already';
  if (mishap === 'kill' || mishap === 'end') {
    signalProcess(pid, mishap === 'kill' ? 'SIGKILL' : 'SIGTERM');
    return what;
  }
  signalProcess(pid, 'SIGSTOP');
  await sleep(mishap === 'stop' ? 1500 * LEASE_S + random(LEASE_S * 1000) : random(800 * LEASE_S));
  signalProcess(pid, 'SIGCONT');
  return what;
}
