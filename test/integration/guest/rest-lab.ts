/** A Debian guest behind a controller, asked over REST as a client would; what it does is seen by virsh. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeDataDisk } from '../../lab/disks.ts';
import { defineDebianGuest, type Guest } from '../../lab/guest.ts';
import type { Rest, RestAnswer } from '../../lab/rest.ts';
import { waitFor } from '../../lab/run.ts';
import { startWorld, type World } from '../../lab/world.ts';

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
export type Json = any;

export const MAC = '52:54:00:ab:cd:ef';
export const base64 = (data: string | Buffer): string => Buffer.from(data).toString('base64');

/** Blocks of memory have 128 MiB; some of them can be taken out of use when it can be moved elsewhere. */
const MEMORY = { memoryMiB: 768, cmdline: 'movablecore=512M' };

type Parts = Pick<
  GuestRestLab,
  'world' | 'guest' | 'id' | 'operator' | 'toolsImage' | 'dataDisk' | 'swapDisk' | 'offered'
>;

export class GuestRestLab {
  readonly world: World;
  readonly guest: Guest;
  readonly id: string;
  /** What may use guests and nothing more. */
  readonly operator: Rest;
  /** The image of guest tools in the agent's settings. */
  readonly toolsImage: string;
  /** vdb: mounted at /mnt/data, raw, and its holes are holes of the file. */
  readonly dataDisk: string;

  /** vdc: free to be made swap space of. */
  readonly swapDisk: string;

  /** Names of the commands that the guest's agent has and allows, as it says itself. */
  readonly offered: readonly string[];

  private constructor(parts: Parts) {
    this.world = parts.world;
    this.guest = parts.guest;
    this.id = parts.id;
    this.operator = parts.operator;
    this.toolsImage = parts.toolsImage;
    this.dataDisk = parts.dataDisk;
    this.swapDisk = parts.swapDisk;
    this.offered = parts.offered;
  }

  /** Files of controller and agent that hold a secret, as it is or in base64. @throws Error when there is no database to look into */
  filesWith(secret: string): string[] {
    const files = [this.world.controller.dir, this.world.agent.dir].flatMap(dir =>
      readdirSync(dir, { recursive: true, withFileTypes: true })
        .filter(entry => entry.isFile())
        .map(entry => join(entry.parentPath, entry.name)),
    );
    if (!files.some(file => file.endsWith('controller.db'))) throw new Error('no database among the files');
    const content = (file: string) => readFileSync(file, 'latin1');
    return files.filter(file => [secret, base64(secret)].some(text => content(file).includes(text)));
  }

  /** A running guest whose agent is known to answer. @param devices further XML of its devices */
  static async start(name: string, devices = (_world: World) => ''): Promise<GuestRestLab> {
    const toolsImage = join(mkdtempSync(join(tmpdir(), 'virtkeep-tools-')), 'guest-tools.iso');
    writeFileSync(toolsImage, Buffer.alloc(1024 * 1024, 1));
    const world = await startWorld({
      controller: true,
      agentSettings: { guest: { tools_image: toolsImage } },
      controllerSettings: { api: { emulator_name: 'qemu' } },
    });
    try {
      const pool = world.node.pool(0).path;
      const dataDisk = await makeDataDisk(join(pool, 'data.raw'), {
        format: 'raw',
        sizeMiB: 128,
        label: 'data',
      });
      const swapDisk = await makeDataDisk(join(pool, 'swap.raw'), { format: 'raw', sizeMiB: 512 });
      const disk = (path: string, target: string) =>
        `<disk type='file' device='disk'><driver name='qemu' type='raw' discard='unmap'/><source file='${path}'/>` +
        `<target dev='${target}' bus='virtio'/></disk>`;
      const all = [
        disk(dataDisk, 'vdb'),
        disk(swapDisk, 'vdc'),
        "<disk type='file' device='cdrom'><target dev='sdc' bus='scsi'/><readonly/></disk>",
        `<interface type='user'><mac address='${MAC}'/><model type='virtio'/></interface>`,
        devices(world),
      ].join('');
      // the second processor is there for the agent to switch on; QEMU may die of one that is plugged in under emulation
      const processors = { vcpus: 2, cmdline: 'maxcpus=1' };
      const guest = await defineDebianGuest(world.node, { name, ...MEMORY, ...processors, devices: all });
      await guest.start();
      await guest.waitForAgent();
      const id = await world.known(guest);
      const user = { username: 'operator', password: 'a long password', role: 'operator' };
      await world.rest.ok('POST', '/api/users/', user);
      const operator = await world.controller.anonymous().login(user.username, user.password);
      const { supported_commands: commands } = await guest.agent<Json>('guest-info');
      const offered = commands.filter((one: Json) => one.enabled).map((one: Json) => one.name);
      const lab = new GuestRestLab({ world, guest, id, operator, toolsImage, dataDisk, swapDisk, offered });
      const connected = async () => (await lab.record()).guest_utils.qemu_state === true;
      await waitFor('the controller to know that the guest answers', connected, 120_000);
      return lab;
    } catch (error) {
      await world.stop();
      throw error;
    }
  }

  async stop(): Promise<void> {
    await this.world.stop();
    rmSync(join(this.toolsImage, '..'), { recursive: true, force: true });
  }

  /** The record of the VM. */
  readonly record = (): Promise<Json> => this.operator.get<Json>(`/api/domains/${this.id}/`);

  /** Any action of the VM. */
  readonly act = (path: string, body: object = {}): Promise<RestAnswer<Json>> =>
    this.operator.send<Json>('POST', `/api/domains/${this.id}/${path}/`, body);

  /** Calls a command of the agent; any answer is one. */
  readonly ask = (emu_cmd: string, fargs: object = {}, timeout = 60): Promise<RestAnswer<Json>> =>
    this.act('guest-command', { emu_cmd, fargs, timeout });

  /** The value of a command of the agent. @throws Error when it is refused */
  readonly run = async (command: string, fargs: object = {}, timeout = 60): Promise<Json> => {
    const { status, body } = await this.ask(command, fargs, timeout);
    if (status !== 200) throw new Error(`${command}: ${status} ${JSON.stringify(body)}`);
    const names = Object.keys(body);
    if (names.length !== 1 || names[0] !== command) throw new Error(`${command}: the answer has ${names}`);
    return body[command];
  };

  /** Status and key of a command that must be refused. @throws Error when it is not */
  readonly refusal = async (command: string, fargs: object = {}, timeout = 60): Promise<[number, string]> => {
    const { status, body } = await this.ask(command, fargs, timeout);
    if (status === 200) throw new Error(`${command}: ${JSON.stringify(body)}`);
    return [status, body.errors[0].msg_key];
  };
}
