/** What happens to several controllers at random, one thing at a time. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { seededRandom } from '@virtkeep/shared/seeded-random';
import { signalProcess } from '../lab/processes.ts';
import type { Cut } from './network.ts';
import { type ClusterWorld, LEASE_S } from './world.ts';

export type Mishap = 'kill' | 'stop' | 'stop-short' | 'end' | 'database' | 'cut' | 'fail-over';
const HERE: readonly Mishap[] = ['kill', 'stop', 'stop-short', 'end', 'database'];
const APART: readonly Mishap[] = [...HERE, 'cut', 'cut', 'cut', 'fail-over'];
const CUTS: readonly Cut[] = ['database', 'nodes', 'controllers', 'all'];

/**
 * Lets one thing happen, and whoever is stopped go on.
 * @returns what it was, for people
 */
export async function happen(world: ClusterWorld, random: ReturnType<typeof seededRandom>): Promise<string> {
  const mishaps = world.isApart ? APART : HERE;
  const mishap = mishaps[random(mishaps.length)]!;
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
  if (mishap === 'fail-over')
    return (await world.failOver()) ? mishap : 'nothing: there is no follower any more';
  if (mishap === 'cut') {
    const cut = CUTS[random(CUTS.length)]!;
    const heal = await world.cut(victim, cut);
    await sleep(random(4000 * LEASE_S));
    await heal();
    return `${what} from ${cut}`;
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
