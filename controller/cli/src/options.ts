import { type Command, InvalidArgumentError } from 'commander';
import { parseBytes } from './output.ts';

/** The argument of a limit of speed. */
export function bandwidth(text: string): number {
  const value = parseBytes(text);
  if (value === undefined || value < 1)
    throw new InvalidArgumentError('It is bytes per second: 500000, 20M, 1.5G.');
  return value;
}

/** A zstd level. */
export function level(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > 9) throw new InvalidArgumentError('It is 1 to 9.');
  return value;
}

/** How many of something. */
export function count(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError('It is 1 or more.');
  return value;
}

/** For commander: whole milliseconds, 0 for none. */
export function milliseconds(text: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isInteger(value) || value < 0 || value > 60_000)
    throw new InvalidArgumentError('It is 0 to 60000 milliseconds.');
  return value;
}

/** Seconds, in a limit of time. */
export function seconds(text: string): number {
  const value = Number(text);
  if (!Number.isFinite(value) || value <= 0) throw new InvalidArgumentError('It is a number of seconds.');
  return value;
}

/** Of the commands that may make layers of a VM's disks. */
export interface LayerOptions {
  allowNetworkLayers?: boolean;
}

/** Adds the option that such commands have. */
export function withLayerOptions(command: Command): Command {
  return command.option(
    '--allow-network-layers',
    'layers of a VM whose disks are all devices may lie on a network file system',
  );
}

/** The option as requests have it. */
export function layerFields({ allowNetworkLayers }: LayerOptions): { allow_network_layers?: true } {
  return allowNetworkLayers ? { allow_network_layers: true } : {};
}

/** One more of `--network`. */
export function network(text: string, before: Record<string, string>): Record<string, string> {
  const at = text.lastIndexOf('=');
  if (at < 1 || at === text.length - 1)
    throw new InvalidArgumentError('It is the network of the file and the one here: "VM Network=default".');
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}
