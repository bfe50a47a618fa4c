export interface TagRecord {
  id: string;
  verbose_name: string;
  description: string;
  colour: string;
  created: string;
  modified: string;
  entities: { entity_uuid: string; entity_class: string }[];
  entities_count: number;
}

/** A tag with what bears it. */
export type BorneTag = Pick<TagRecord, 'id' | 'verbose_name' | 'colour'>;
