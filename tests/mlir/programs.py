"""Programs that several tests read."""

#: relu(a + b), in two linalg.generics that fuse
CHAIN = """
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %sum = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.addf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<4x8xf32>
  %relu = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%sum : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %c = arith.constant 0.0 : f32
    %m = arith.maximumf %x, %c : f32
    linalg.yield %m : f32
  } -> tensor<4x8xf32>
  return %relu : tensor<4x8xf32>
}
"""

#: the sum of squares of the positive elements, by loops over a buffer
LOOPS = """
func.func @main(%a: memref<4x8xf32>) -> f32 {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %sum = scf.for %i = %c0 to %c4 step %c1 iter_args(%acc = %zero) -> (f32) {
    %row = scf.for %j = %c0 to %c8 step %c1 iter_args(%in = %acc) -> (f32) {
      %x = memref.load %a[%i, %j] : memref<4x8xf32>
      %p = arith.cmpf ogt, %x, %zero : f32
      %y = scf.if %p -> (f32) {
        %d = arith.mulf %x, %x : f32
        scf.yield %d : f32
      } else {
        scf.yield %zero : f32
      }
      %s = arith.addf %in, %y : f32
      scf.yield %s : f32
    }
    scf.yield %row : f32
  }
  return %sum : f32
}
func.func @other(%x: f32) -> f32 { return %x : f32 }
"""
