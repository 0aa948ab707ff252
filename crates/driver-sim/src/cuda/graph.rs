//! Graphs, as captured from one stream.

use super::Handle;
use crate::machine::context::{current, stream};
use crate::machine::graph::Graph;
use crate::machine::machine;
use crate::{answer, entries};

entries! { TABLE;
    fn cuGraphInstantiateWithFlags(to: *mut Handle, graph: Handle, _flags: u64) { instantiate(to, graph) }
    fn cuGraphLaunch(graph: Handle, on: Handle) {
        let (graph, stream) = (machine().graphs.get(graph)?, stream(on, current)?);
        graph.deeds.iter().try_for_each(|deed| stream.submit(deed.clone()))
    }
    fn cuGraphUpload(graph: Handle, on: Handle) {
        machine().graphs.get(graph)?;
        stream(on, current).map(|_| ())
    }
    fn cuGraphDestroy(graph: Handle) { machine().graphs.remove(graph).map(|_| ()) }
    fn cuGraphExecDestroy(graph: Handle) { machine().graphs.remove(graph).map(|_| ()) }
}

unsafe fn instantiate(to: *mut Handle, graph: Handle) -> crate::machine::Result<()> {
    let deeds = machine().graphs.get(graph)?.deeds.clone();
    // SAFETY: the caller's promise.
    unsafe { answer(to, machine().graphs.add(Graph { deeds })) }
}
