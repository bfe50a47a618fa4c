/** The live cache of the node's domains and pools. */

export { powerStateOf } from './domain-facts.ts';
export {
  Inventory,
  type InventoryDependencies as InventoryOptions,
  type LibvirtSource,
} from './inventory.ts';
export { encodedForm } from './shown.ts';
