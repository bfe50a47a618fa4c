/**
 * Half an hour of mishaps, in which each controller has a network of its own.
 * usage: proof.ts [minutes] [nodes] [seed]   (KEEP=1 leaves the logs of the controllers)
 */
import { cutOffFromNodes } from './cut-off.ts';
import { ControllerNetwork } from './network.ts';
import { runTrial } from './trial.ts';
import { ClusterWorld } from './world.ts';

const CONTROLLERS = 3;
const VMS = 4;
const [minutes = '30', nodes = '50', seed = String(Date.now() % 100_000)] = process.argv.slice(2);

const say = (text: string) => process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`);
const world = new ClusterWorld();
try {
  const network = await ControllerNetwork.make(CONTROLLERS);
  await world.start({
    controllers: CONTROLLERS,
    nodes: Number(nodes),
    vms: VMS,
    network,
    hasRealNodes: true,
  });
  await world.tellAgents({ do: 'pace', pace: { steps: 5, stepMs: 1000 } });
  world.keepRunning();
  say(`seed ${seed}: ${CONTROLLERS} controllers, ${nodes} simulated nodes and two real ones`);
  const tookMs = await cutOffFromNodes(world);
  say(`the one that acted did not reach the nodes: after ${Math.round(tookMs / 1000)} s another one did`);
  const { notes, faults, happened, impatient } = await runTrial(world, {
    durationMs: Number(minutes) * 60_000,
    seed: Number(seed),
    say,
  });
  say(
    `${happened.length} mishaps, ${notes.calls} calls, ${notes.backups.length} backups, at most ${notes.mostAttempts} attempts, ` +
      `the slowest call took ${Math.round(notes.slowestMs)} ms`,
  );
  for (const { what, met } of notes.repeated) say(`more than one retry: ${what}: ${met.join(', ')}`);
  for (const text of impatient) say(`more retries than things that happened: ${text}`);
  for (const fault of faults) say(`WRONG: ${fault}`);
  say(faults.length === 0 ? 'nothing is wrong' : `${faults.length} things are wrong`);
  process.exitCode = faults.length === 0 ? 0 : 1;
} finally {
  await world.end();
}
process.exit();
