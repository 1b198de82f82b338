// SPDX-License-Identifier: Apache-2.0
//! Each feature, by one rank.

#![cfg(all(feature = "bytemuck", feature = "half", feature = "serde", feature = "tracing"))]

use half::{bf16, f16};
use meron::{
    open_checkpoint, write_checkpoint, Buffer, Context, Dtype, ErrorKind, ParamDesc, Source,
    WriteOptions,
};
use meron_interop::{
    as_bytes, as_pod, elements, elements_vec, extra, from_elements_vec, listed_checkpoints,
    to_extra, trace, AsHalf, AsHalfMut,
};

#[test]
fn half_types_are_written_viewed_and_reduced_in_place() {
    let context = Context::options().rank(0).world_size(1).threads(1).log(trace).open().unwrap();
    let weight = context.register(&ParamDesc::new("w", &[3]).dtype(Dtype::Bf16)).unwrap();
    let unit = context.unit("u", &[&weight]).unwrap();
    let values = [1.0f32, -2.0, 0.5].map(bf16::from_f32);
    let mut update = context.update(&[&unit]).unwrap();
    update.write(&weight, elements(&values)).unwrap();
    update.view(&weight).unwrap().as_half_mut::<bf16>().unwrap()[2] = bf16::from_f32(4.0);
    update.publish().unwrap();

    let full = unit.gather().unwrap();
    let view = full.view(&weight).unwrap();
    let seen: &[bf16] = view.as_half().unwrap();
    assert_eq!(seen, [1.0f32, -2.0, 4.0].map(bf16::from_f32));
    assert_eq!(view.as_half::<f16>().unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(as_bytes(&view).unwrap(), [0x80, 0x3F, 0x00, 0xC0, 0x80, 0x40]);
    assert_eq!(as_pod::<u16>(&view).unwrap().unwrap(), [0x3F80, 0xC000, 0x4080]);
    assert!(as_pod::<u32>(&view).unwrap().is_none());
    drop(full);

    let sources = [Source::new(&weight, elements(&values))];
    unit.reduce_from(&sources, &Default::default()).unwrap();
    let mut reduced = unit.reduced().unwrap();
    assert_eq!(reduced.view(&weight).unwrap().as_slice::<f32>().unwrap(), [1.0, -2.0, 0.5]);

    let array = vec![f16::from_f32(2.0); 3];
    let sums = context.world().unwrap().all_reduce_begin(elements_vec(array), Default::default());
    let sums: Vec<f16> = from_elements_vec(sums.unwrap().wait().unwrap());
    assert_eq!(sums, [f16::from_f32(2.0); 3]);
    assert_eq!(Buffer::from(elements_vec(values.to_vec())).dtype(), Dtype::Bf16);
}

#[test]
fn texts_of_checkpoints_are_types() {
    let folder = std::env::temp_dir().join(format!("meron-interop-{}", std::process::id()));
    let state = vec![3u32, 4];
    let text = format!("{{\"seen\": {}}}", to_extra(&state).unwrap());
    write_checkpoint(&folder, "a", &[], &WriteOptions::new().step(7).extra(&text)).unwrap();
    let listed = listed_checkpoints(&folder).unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].step, listed[0].world), ("a", 7, 1));
    let checkpoint = open_checkpoint(&folder, None).unwrap();
    let kept: std::collections::BTreeMap<String, Vec<u32>> = extra(&checkpoint).unwrap();
    assert_eq!(kept["seen"], state);
    assert_eq!(extra::<Vec<u32>>(&checkpoint).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    std::fs::remove_dir_all(&folder).unwrap();
    let gone = listed_checkpoints(&folder).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
}
